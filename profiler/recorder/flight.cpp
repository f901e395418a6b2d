#include "profiler/recorder/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace warpstep::profiler {
namespace {

constexpr double most_cost = 0.002;                   // of the time of steps
constexpr double most_every = 1000;                   // bursts
constexpr std::uint64_t least_seen = 16;              // steps, before a median is one
constexpr std::uint64_t warm_up = 3;                  // steps, that are slow in every run
constexpr std::uint64_t slow_factor = 3;              // of the median
constexpr std::uint64_t least_excess_ns = 1'000'000;  // above it: less is the scheduler's
constexpr std::uint64_t median_period = 8;            // steps

}  // namespace

void Flight::end_burst(std::uint64_t recorded) {
  const double cost = static_cast<double>(recorded - std::min(recorded, recorded_)) * span_ns_;
  const double allowed = most_cost * static_cast<double>(burst_ns_);
  every_ = allowed <= 0
               ? static_cast<std::uint64_t>(most_every)
               : static_cast<std::uint64_t>(std::clamp(std::ceil(cost / allowed), 1.0, most_every));
}

std::vector<Window> Flight::windows(std::uint64_t from_ns, std::uint64_t to_ns) const {
  std::vector<Window> windows;
  for (const Detailed& one : detailed_) {
    if (one.begin_ns < from_ns || one.end_ns > to_ns) continue;
    const bool continues = !windows.empty() && windows.back().last_step + 1 == one.step &&
                           windows.back().end_ns == one.begin_ns;
    if (!continues)
      windows.push_back(
          {.first_step = one.step, .begin_ns = one.begin_ns, .complete = 1, .past = 1});
    windows.back().last_step = one.step;
    windows.back().end_ns = one.end_ns;
  }
  return windows;
}

void Flight::look_at(const Step& step) {
  const std::uint64_t ns = step.end_ns - step.begin_ns;
  begins_[step.step % begins_.size()] = step.begin_ns;
  if (++seen_ <= warm_up) return;
  const std::uint64_t count = seen_ - warm_up;
  if (slow_ && step.step <= slow_->step + around) slow_->last_step = step.step;
  if (slow_) slow_->end_ns = step.end_ns;
  const bool ends_update = accumulate_ > 1 && step.step % accumulate_ == 0;
  Typical& typical = ends_update ? ends_update_ : others_;
  const std::uint64_t median_ns = typical.median_ns;
  const bool is_slow =
      median_ns > 0 && ns > slow_factor * median_ns && ns > median_ns + least_excess_ns;
  const bool counts =
      kept_ns_.size() < slowest || (kept_ns_.size() < most_kept && ns > kept_ns_[slowest - 1]);
  if (is_slow && counts && (!slow_ || ns > slow_ns_)) {
    const std::uint64_t before = std::min(around, count - 1);
    const std::uint64_t first = slow_ ? slow_->first_step : step.step - before;
    const std::uint64_t begin =
        slow_ ? slow_->begin_ns : begins_[(step.step - before) % begins_.size()];
    slow_ = Kept{.begin_ns = begin,
                 .end_ns = step.end_ns,
                 .first_step = first,
                 .last_step = step.step,
                 .step = step.step,
                 .median_ns = median_ns};
    slow_ns_ = ns;
  }
  typical.add(ns);
}

void Flight::Typical::add(std::uint64_t ns) {
  lengths[++count % lengths.size()] = ns;
  if (count < least_seen || count % median_period != 0) return;
  std::array<std::uint64_t, median_of> sorted = lengths;
  const auto end =
      sorted.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count, median_of));
  // Below a whole round the first place, of no step, is 0.
  const auto begin = sorted.begin() + (count < median_of ? 1 : 0);
  const auto middle = begin + (end - begin) / 2;
  std::nth_element(begin, middle, end);
  median_ns = *middle;
}

std::optional<Kept> Flight::take_slow(bool at_end) {
  if (!slow_ || (!at_end && slow_->last_step < slow_->step + around)) return std::nullopt;
  kept_ns_.push_back(slow_ns_);
  std::ranges::sort(kept_ns_, std::ranges::greater());
  return std::exchange(slow_, std::nullopt);
}

std::string why_not_after(const std::optional<Step>& before, const Step& step) {
  if (step.end_ns < step.begin_ns)
    return fmt::format("step {} was left out, and maybe others: it ends {} ns before it begins",
                       step.step, step.begin_ns - step.end_ns);
  if (!before || (step.step > before->step && step.begin_ns >= before->end_ns)) return "";
  return fmt::format(
      "step {} from {} to {} ns was left out, and maybe others: numbers of steps rise, and the one "
      "before it was {} and ended at {} ns",
      step.step, step.begin_ns, step.end_ns, before->step, before->end_ns);
}

}  // namespace warpstep::profiler
