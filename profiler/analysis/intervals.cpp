#include "profiler/analysis/intervals.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace warpstep::profiler {

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end_ns <= i.begin_ns; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::size_t kept = 0;
  for (const Interval& interval : intervals) {
    if (kept > 0 && interval.begin_ns <= intervals[kept - 1].end_ns)
      intervals[kept - 1].end_ns = std::max(intervals[kept - 1].end_ns, interval.end_ns);
    else
      intervals[kept++] = interval;
  }
  intervals.resize(kept);
  return intervals;
}

std::uint64_t total_ns(std::span<const Interval> disjoint) {
  std::uint64_t sum = 0;
  for (const Interval& interval : disjoint) sum += interval.end_ns - interval.begin_ns;
  return sum;
}

std::vector<Interval> intersection(std::span<const Interval> a, std::span<const Interval> b) {
  std::vector<Interval> common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].begin_ns, b[j].begin_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (both.begin_ns < both.end_ns) common.push_back(both);
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return common;
}

std::vector<Interval> difference(std::span<const Interval> a, std::span<const Interval> b) {
  std::vector<Interval> rest;
  std::size_t j = 0;
  for (Interval left : a) {
    while (j < b.size() && b[j].end_ns <= left.begin_ns) ++j;
    // What of b ends beyond `left` may take from the next one of a, too: j stays there.
    for (std::size_t k = j; k < b.size() && b[k].begin_ns < left.end_ns; ++k) {
      if (left.begin_ns < b[k].begin_ns) rest.push_back({left.begin_ns, b[k].begin_ns});
      left.begin_ns = std::min(left.end_ns, b[k].end_ns);
      if (b[k].end_ns <= left.end_ns) j = k + 1;
    }
    if (left.begin_ns < left.end_ns) rest.push_back(left);
  }
  return rest;
}

IntervalSet::IntervalSet(std::vector<Interval> intervals)
    : disjoint_(merged(std::move(intervals))), before_{0} {
  for (const Interval& interval : disjoint_)
    before_.push_back(before_.back() + interval.end_ns - interval.begin_ns);
}

bool IntervalSet::has(std::uint64_t at_ns) const {
  const auto after = std::ranges::upper_bound(disjoint_, at_ns, {}, &Interval::begin_ns);
  return after != disjoint_.begin() && at_ns < std::prev(after)->end_ns;
}

std::uint64_t IntervalSet::before(std::uint64_t at_ns) const {
  const auto after = std::ranges::upper_bound(disjoint_, at_ns, {}, &Interval::begin_ns);
  if (after == disjoint_.begin()) return 0;
  const auto last = std::prev(after);
  return before_[static_cast<std::size_t>(last - disjoint_.begin())] +
         std::min(at_ns, last->end_ns) - last->begin_ns;
}

std::uint64_t IntervalSet::within(std::uint64_t begin_ns, std::uint64_t end_ns) const {
  return end_ns > begin_ns ? before(end_ns) - before(begin_ns) : 0;
}

NestedSlices nest(const std::vector<Interval>& items) {
  NestedSlices nesting;
  nesting.parent.assign(items.size(), -1);
  std::vector<std::size_t> open;
  std::uint64_t now = 0;
  const auto advance = [&](std::uint64_t to) {
    while (!open.empty()) {
      const std::size_t inner = open.back();
      const std::uint64_t end = std::min(items[inner].end_ns, to);
      if (now < end) {
        nesting.slices.push_back({now, end, inner});
        now = end;
      }
      if (items[inner].end_ns > to) break;
      open.pop_back();
    }
    now = std::max(now, to);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    advance(items[i].begin_ns);
    if (!open.empty()) nesting.parent[i] = static_cast<std::int64_t>(open.back());
    open.push_back(i);
  }
  advance(UINT64_MAX);
  return nesting;
}

}  // namespace warpstep::profiler
