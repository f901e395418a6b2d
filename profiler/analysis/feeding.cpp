#include "profiler/analysis/feeding.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/intervals.h"

namespace warpstep::profiler {
namespace {

// The feeder's thread that copied most batches while steps ran: an evaluation has another one.
std::optional<std::uint32_t> copier(const View& view) {
  const Session& session = view.session;
  std::vector<std::size_t> copies(session.threads.size());
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::copy && view.in_steps(span.begin_ns)) ++copies[span.thread];
  const auto most = std::ranges::max_element(copies);
  if (most == copies.end() || *most == 0) return std::nullopt;
  return static_cast<std::uint32_t>(most - copies.begin());
}

// When the trainer waits for data and neither the device nor the runtime has anything to do, in
// recorded steps.
std::vector<Interval> idle_waits(const View& view) {
  const ByCategory by = by_category(view, {});
  const auto of = [&](Category category) { return by[static_cast<std::size_t>(category)]; };
  std::vector<Interval> busy;
  for (const Category category : {Category::kernel, Category::copy, Category::memset,
                                  Category::communication, Category::runtime})
    for (const Interval& interval : of(category)) busy.push_back(interval);
  const std::vector<Interval> waits =
      intersection(merged(of(Category::data)), merged(view.recorded.times()));
  return difference(waits, merged(std::move(busy)));
}

struct Copier {
  std::vector<Interval> copies;  // in order
  std::vector<Interval> empty;   // it waits for the loader
};

Copier spans_of(const Session& session, std::uint32_t thread) {
  Copier found;
  for (const Span& span : session.spans) {
    if (span.thread != thread) continue;
    const Interval time{span.begin_ns, span.end_ns};
    if (session.kind(span) == Kind::copy) found.copies.push_back(time);
    if (session.kind(span) == Kind::idle) found.empty.push_back(time);
  }
  found.empty = merged(std::move(found.empty));
  return found;
}

// When the batch that ended this wait was on the device: the first one copied since it began, as
// the next one may have been copied before the thread woke up.
Interval copy_of(const Copier& copier, const Interval& wait) {
  const auto first = std::ranges::upper_bound(copier.copies, wait.begin_ns, {}, &Interval::end_ns);
  if (first == copier.copies.end() || first->end_ns > wait.end_ns)
    return {wait.begin_ns, wait.begin_ns};  // it was there
  return *first;
}

double covered(std::span<const Interval> idle, std::vector<Interval> by) {
  return static_cast<double>(total_ns(intersection(idle, merged(std::move(by)))));
}

}  // namespace

FeedWaits feed_waits(const View& view) {
  FeedWaits sum;
  const std::optional<std::uint32_t> thread = copier(view);
  if (view.session.computes_on_host() || view.recorded.size() == 0 || !thread) return sum;
  const Copier copier = spans_of(view.session, *thread);
  const std::vector<Interval> idle = idle_waits(view);
  std::vector<Interval> before, copying, late;
  for (const Span& span : view.session.spans) {
    if (view.session.kind(span) != Kind::wait || span.thread != view.trainer) continue;
    const Interval wait{span.begin_ns, span.end_ns}, copy = copy_of(copier, wait);
    before.push_back({wait.begin_ns, std::max(wait.begin_ns, copy.begin_ns)});
    copying.push_back({std::max(wait.begin_ns, copy.begin_ns), copy.end_ns});
    late.push_back({copy.end_ns, wait.end_ns});
  }
  const auto steps = static_cast<double>(view.recorded.size());
  sum.copy_ns = covered(idle, std::move(copying)) / steps;
  sum.late_ns = covered(idle, std::move(late)) / steps;
  const std::vector<Interval> waiting = merged(std::move(before));
  const std::vector<Interval> empty = intersection(waiting, copier.empty);
  sum.batch_ns = covered(idle, empty) / steps;
  sum.buffer_ns = covered(idle, difference(waiting, empty)) / steps;
  return sum;
}

}  // namespace warpstep::profiler
