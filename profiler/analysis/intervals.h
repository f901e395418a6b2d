// Time intervals as sets: union, intersection, difference, and the nesting of one thread's spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace warpstep::profiler {

struct Interval {
  std::uint64_t begin_ns = 0, end_ns = 0;
};

// The order of nested spans and the like: the one that begins first, else the longer one.
template <class Timed>
bool begins_outside(const Timed& a, const Timed& b) {
  return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
}

// Of intervals that may overlap in any way: sorted, merged, disjoint; empty ones left out.
std::vector<Interval> merged(std::vector<Interval> intervals);
std::uint64_t total_ns(std::span<const Interval> disjoint);
std::vector<Interval> intersection(std::span<const Interval> a, std::span<const Interval> b);
std::vector<Interval> difference(std::span<const Interval> a, std::span<const Interval> b);

// A union of intervals, asked many times.
class IntervalSet {
 public:
  IntervalSet() = default;
  explicit IntervalSet(std::vector<Interval> intervals);  // that may overlap in any way

  bool has(std::uint64_t at_ns) const;
  // How much of [begin, end) it has.
  std::uint64_t within(std::uint64_t begin_ns, std::uint64_t end_ns) const;
  std::uint64_t total_ns() const { return before_.empty() ? 0 : before_.back(); }

 private:
  std::uint64_t before(std::uint64_t at_ns) const;  // how much it has before

  std::vector<Interval> disjoint_;
  std::vector<std::uint64_t> before_;  // the length of so many of the first ones
};

struct TimeSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::size_t item = 0;  // the innermost one
};

struct NestedSlices {
  std::vector<TimeSlice> slices;     // disjoint, in order; together the union of the items
  std::vector<std::int64_t> parent;  // of each item; -1: none
};

// Which of a thread's nested spans is the innermost at each moment. Items by begin, of equal begins
// the longer one first. Where items overlap without nesting, which spans of one thread do not, the
// later one wins.
NestedSlices nest(const std::vector<Interval>& items);

}  // namespace warpstep::profiler
