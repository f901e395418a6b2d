#include "profiler/analysis/device_waits.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "profiler/analysis/breakdown.h"

namespace warpstep::profiler {
namespace {

// The ranges of the trainer's thread, without the steps' own.
class Ranges {
 public:
  explicit Ranges(const View& view) : session_(view.session) {
    std::vector<const Span*> spans;
    for (const Span& span : session_.spans)
      if (span.thread == view.trainer && session_.kind(span) == Kind::range &&
          session_.name(span.name) != "step")
        spans.push_back(&span);
    std::ranges::stable_sort(spans,
                             [](const Span* a, const Span* b) { return begins_outside(*a, *b); });
    for (const Span* const span : spans) {
      times_.push_back({span->begin_ns, span->end_ns});
      names_.push_back(span->name);
    }
    nesting_ = nest(times_);
  }

  // The innermost one around this time; "" for none.
  std::string around(std::uint64_t begin_ns, std::uint64_t end_ns) const {
    const auto after =
        std::ranges::upper_bound(nesting_.slices, begin_ns, {}, &TimeSlice::begin_ns);
    if (after == nesting_.slices.begin() || begin_ns >= std::prev(after)->end_ns) return "";
    auto item = static_cast<std::int64_t>(std::prev(after)->item);
    while (item >= 0 && times_[static_cast<std::size_t>(item)].end_ns < end_ns)
      item = nesting_.parent[static_cast<std::size_t>(item)];
    return item < 0 ? "" : session_.name(names_[static_cast<std::size_t>(item)]);
  }

 private:
  const Session& session_;
  std::vector<Interval> times_;
  std::vector<std::uint32_t> names_;
  NestedSlices nesting_;
};

IntervalSet exposed_waits(const View& view) {
  const ByCategory all = by_category(view, {});
  std::vector<Interval> others;  // to which a moment belongs before it is a wait
  for (std::size_t c = 0; c < static_cast<std::size_t>(Category::sync); ++c)
    others.insert(others.end(), all[c].begin(), all[c].end());
  return IntervalSet(
      difference(merged(all[static_cast<std::size_t>(Category::sync)]), merged(std::move(others))));
}

}  // namespace

LongestWait longest_exposed_wait(const View& view) {
  const Session& session = view.session;
  const Ranges ranges(view);
  const IntervalSet exposed = exposed_waits(view);
  std::map<std::string, double> by_range;
  double all = 0;
  std::uint64_t last_end = 0;  // a wait inside another one is a part of it
  const auto add = [&](std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (!view.in_steps(begin_ns) || begin_ns < last_end) return;
    last_end = end_ns;
    const auto ns = static_cast<double>(exposed.within(begin_ns, end_ns));
    by_range[ranges.around(begin_ns, end_ns)] += ns;
    all += ns;
  };
  for (const Span& span : session.spans)
    if (span.thread == view.trainer && session.kind(span) == Kind::sync)
      add(span.begin_ns, span.end_ns);
  if (by_range.empty())
    for (const Activity& activity : session.activities)
      if (activity.what == What::sync && is_of_thread(session, activity, view.trainer))
        add(activity.start_ns, activity.end_ns);
  const auto longest =
      std::max_element(by_range.begin(), by_range.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (longest == by_range.end() || all <= 0) return {};
  return {longest->first, longest->second / all};
}

}  // namespace warpstep::profiler
