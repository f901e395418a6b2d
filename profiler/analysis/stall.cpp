#include "profiler/analysis/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/core/text.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

std::string_view bound_text(Bound bound) {
  switch (bound) {
    case Bound::cpu: return ", CPU-bound";
    case Bound::io: return ", I/O-bound";
    case Bound::asleep: return ", asleep for most of it";
    case Bound::core: return ", without a core for most of it";
    case Bound::unknown: break;
  }
  return "";
}

// Both parts in the unit of the whole: "12.3 of 41.0 ms".
std::string part_text(double part, double whole) {
  const bool in_ms = whole >= 1e6;
  const double unit = in_ms ? 1e6 : 1e3;
  return fmt::format("{:.1f} of {:.1f} {}", part / unit, whole / unit, in_ms ? "ms" : "us");
}

std::string workers_text(const LoaderView& view, const Stall& stall) {
  const std::string now = counted(view.workers, "worker");
  // That they sleep is all that is known: a lock would keep more of them waiting.
  const bool may_be_a_lock = stall.bound == Bound::asleep && view.workers > 1;
  if (stall.workers_needed > view.workers)
    return fmt::format("; {} would hide it (step {}, {:.2f}x){}",
                       counted(stall.workers_needed, "worker"),
                       quantity(stall.step_with_them_ns, Unit::ns), stall.speedup,
                       may_be_a_lock ? " unless they wait for one lock" : "");
  const std::string on = view.cores > 0 ? " on " + counted(view.cores, "core") : "";
  if (stall.best_workers > view.workers && stall.speedup > 1.02)
    return fmt::format(
        "; no number of workers hides it{}, but {} would shorten it (step {}, {:.2f}x)", on,
        counted(stall.best_workers, "worker"), quantity(stall.step_with_best_ns, Unit::ns),
        stall.speedup);
  return fmt::format("; more than {} would not help{}", now, on);
}

// "; 3 % of the steps have 71 % of the waiting".
std::string pattern_text(const LoaderView& view) {
  if (view.stall_period > 0)
    return fmt::format("; all waiting is in one step of {}", view.stall_period);
  const Concentration& few = view.waiting;
  if (few.share_of_all > 0.2) return "";
  return fmt::format("; {} of the steps have {} of the waiting",
                     quantity(few.share_of_all, Unit::share),
                     quantity(few.share_of_sum, Unit::share));
}

std::string rest_text(const LoaderView& view, const Stall& stall) {
  std::string text;
  if (stall.prefetch_needed > 0)
    text += fmt::format("; a prefetch of {} hides it", stall.prefetch_needed);
  if (stall.stage_speedup_needed > 1)
    text += fmt::format("; staying at {}, {} must get {:.2f}x faster",
                        counted(view.workers, "worker"), stall.stage, stall.stage_speedup_needed);
  return text;
}

}  // namespace

std::string stall_text(const LoaderView& view, const Stall& stall) {
  if (stall.step_ns <= 0) return "too few steps for loader statistics";
  std::string text = fmt::format("steps {}-{}: waited {} ({}) for the loader", stall.first_step,
                                 stall.last_step, part_text(stall.wait_ns, stall.step_ns),
                                 quantity(stall.wait_ns / stall.step_ns, Unit::share));
  if (view.work_ns <= 0) return text + "; its workers were not recorded.";
  if (!stall.stage.empty())
    text += fmt::format("; {} is {} of {} worker time per batch{}", stall.stage,
                        quantity(stall.stage_share, Unit::share), quantity(view.work_ns, Unit::ns),
                        bound_text(stall.bound));
  if (!stall.is_stalled) return text + "; loading overlaps with computing.";
  text += pattern_text(view);
  // What does not explain the run as it was predicts no other.
  if (!stall.fits)
    return text + fmt::format(
                      "; the replayed run takes {} per step: {} are not explained, and no number "
                      "of workers can be promised.",
                      quantity(stall.step_ns - stall.unexplained_ns, Unit::ns),
                      quantity(std::abs(stall.unexplained_ns), Unit::ns));
  return text + workers_text(view, stall) + rest_text(view, stall) + ".";
}

namespace {

constexpr double least_share = 0.02;  // of a step: less waiting is no stall
constexpr int longest_curve = 64;

// What limits workers: what most of their time consists of. Without the CPU time of each sample,
// that of all workers says it; of sessions without any, the disk does for reading.
Bound find_bound(const LoaderView& view, const Stall& stall, const View& source) {
  if (view.work_ns <= 0) return Bound::unknown;
  if (view.knows_cpu) {
    if (view.blocked_ns >= 0.5 * view.work_ns) return Bound::io;
    if (view.asleep_ns >= 0.5 * view.work_ns) return Bound::asleep;
    if (view.delay_ns >= 0.5 * view.work_ns) return Bound::core;
    if (view.cpu_ns >= 0.5 * view.work_ns) return Bound::cpu;
    return Bound::unknown;
  }
  const MetricLevel disk = metric_level(source, "disk busy %");
  const bool reads = stall.stage == "read";
  if (reads && disk.count > 0 && disk.mean >= 50) return Bound::io;
  if (view.cpu_share >= 0.8) return Bound::cpu;
  if (reads && view.cpu_share > 0 && view.cpu_share <= 0.5) return Bound::io;
  // Reading that the disk has no part in copies from the page cache.
  const bool from_cache = view.cpu_share == 0 && reads && disk.count > 0 && disk.mean < 10;
  return from_cache ? Bound::cpu : Bound::unknown;
}

bool hides(const LoaderModel& model, const Predicted& predicted) {
  return predicted.wait_ns < least_share * model.free_step_ns() &&
         predicted.step_ns <= (1 + least_share) * model.free_step_ns();
}

void try_workers(const LoaderModel& model, const LoaderView& view, Stall& stall) {
  const int most = model.most_workers();
  std::vector<int> counts;  // beyond the curve an eighth more each: a machine may have 256 cores
  for (int k = 1; k < most; k += k < longest_curve ? 1 : k / 8) counts.push_back(k);
  counts.push_back(most);
  std::vector<double> steps;
  double hiding_ns = 0;
  for (const int k : counts) {
    const Predicted predicted = model.predict({.workers = k});
    if (k <= longest_curve) stall.wait_by_workers_ns.push_back(predicted.wait_ns);
    if (k > std::max(1, view.workers) && view.source.is_saturated()) continue;
    steps.push_back(predicted.step_ns);
    if (stall.workers_needed > 0 || !hides(model, predicted)) continue;
    // However long the epochs are.
    if (!model.has_pauses() || hides(model, model.predict({.workers = k, .steady = true})))
      stall.workers_needed = k, hiding_ns = predicted.step_ns;
  }
  const double shortest = *std::min_element(steps.begin(), steps.end());
  const auto best = std::find_if(steps.begin(), steps.end(),
                                 [&](double step) { return step <= 1.01 * shortest; });
  stall.best_workers = counts[static_cast<std::size_t>(best - steps.begin())];
  // As gains are: what the replay saves, taken from what was measured.
  const double off = model.unexplained_ns();
  stall.step_with_best_ns = *best + off;
  stall.step_with_them_ns = (stall.workers_needed > 0 ? hiding_ns : *best) + off;
  if (stall.step_with_them_ns > 0) stall.speedup = stall.step_ns / stall.step_with_them_ns;
}

void try_prefetch(const LoaderModel& model, const LoaderView& view, Stall& stall) {
  constexpr std::array<int, 8> values{2, 3, 4, 6, 8, 16, 32, 64};
  const auto waits = [&](const Predicted& with) {
    return with.wait_ns >= least_share * model.free_step_ns();
  };
  const bool explains_wait = waits(model.as_it_was());  // else a longer queue hides nothing
  for (const int prefetch : values) {
    const Predicted predicted = model.predict({.prefetch = prefetch});
    stall.wait_by_prefetch_ns.emplace_back(prefetch, predicted.wait_ns);
    if (!explains_wait || stall.prefetch_needed > 0 || prefetch <= view.prefetch) continue;
    if (view.source.is_limited) continue;
    if (waits(predicted)) continue;
    if (model.has_pauses() && waits(model.predict({.prefetch = prefetch, .steady = true})))
      continue;
    stall.prefetch_needed = prefetch;
  }
}

// The least speed-up of the longest stage that hides the wait, by bisection.
void try_stage(const LoaderModel& model, const LoaderView& view, Stall& stall) {
  if (stall.stage_share <= 0) return;
  const double own = cpu_share_of(view, stall.stage), asleep = asleep_share_of(view, stall.stage);
  const bool reads = stall.stage == "read";
  const auto wait = [&](double left) {
    const double blocked = reads ? left : 1;
    return model
        .predict({.cpu = 1 - own * (1 - left),
                  .latency = blocked,
                  .bytes = blocked,
                  .asleep = 1 - asleep * (1 - left)})
        .wait_ns;
  };
  double hiding = 0.01, waiting = 1;  // shares of the stage's time that are left
  const double none = 0.002 * model.free_step_ns();
  if (wait(hiding) >= none) return;
  for (int tries = 0; tries < 8; ++tries) {
    const double middle = (hiding + waiting) / 2;
    (wait(middle) < none ? hiding : waiting) = middle;
  }
  stall.stage_speedup_needed = 1 / hiding;
}

void find_stage(const LoaderView& view, Stall& stall) {
  const auto longest = std::max_element(view.stage_ns.begin(), view.stage_ns.end());
  if (longest == view.stage_ns.end() || *longest <= 0 || view.work_ns <= 0) return;
  stall.stage = view.stages[static_cast<std::size_t>(longest - view.stage_ns.begin())];
  stall.stage_share = std::min(1.0, *longest / view.work_ns);
}

}  // namespace

Stall diagnose(const LoaderView& view, const View& source) {
  Stall stall;
  const Session& session = source.session;
  const std::vector<std::size_t>& counted = source.counted;
  if (!counted.empty()) {
    stall.first_step = session.steps[counted.front()].step;
    stall.last_step = session.steps[counted.back()].step;
  }
  // A run's first step always waits for the first batch: alone it says nothing about the loader.
  if (source.recorded.size() == 0 && session.steps.size() < 2) {
    stall.text = stall_text(view, stall);
    return stall;
  }
  stall.wait_ns = view.wait_ns;
  stall.step_ns = view.step_ns + view.wait_ns;
  stall.is_stalled = stall.step_ns > 0 && stall.wait_ns >= least_share * stall.step_ns;
  find_stage(view, stall);
  stall.bound = find_bound(view, stall, source);
  if (view.work_ns > 0 && stall.step_ns > 0) {
    const LoaderModel model(view, source);
    stall.predicted_wait_ns = model.as_it_was().wait_ns;
    stall.unexplained_ns = model.unexplained_ns();
    stall.fits = model.fits();
    try_workers(model, view, stall);
    try_prefetch(model, view, stall);
    if (stall.is_stalled) try_stage(model, view, stall);
  }
  stall.text = stall_text(view, stall);
  return stall;
}

}  // namespace warpstep::profiler
