// Slices that overlap on one track, spread over as many tracks as they need.
#pragma once

#include <cstdint>
#include <vector>

namespace warpstep::profiler {

enum class Nesting : std::uint8_t {
  allowed,  // a slice may lie inside another: calls of a host thread
  none,     // side by side, or on different lanes: the work of a stream
};

// Gives slices lanes, the lowest that is free; they must come by begin, then the longer one first.
// Everything is of one track.
class Lanes {
 public:
  explicit Lanes(Nesting nesting) : nesting_(nesting) {}

  // 0, 1, ...: the lane of [begin_ns, end_ns).
  std::uint32_t take(std::uint64_t begin_ns, std::uint64_t end_ns) {
    std::uint32_t lane = 0;
    while (lane < open_.size() && !fits(open_[lane], begin_ns, end_ns)) ++lane;
    if (lane == open_.size()) open_.emplace_back();
    open_[lane].push_back(end_ns);
    return lane;
  }

 private:
  // Closes what has ended on the lane; what is left is open and encloses all that comes after it.
  bool fits(std::vector<std::uint64_t>& ends, std::uint64_t begin_ns, std::uint64_t end_ns) const {
    while (!ends.empty() && ends.back() <= begin_ns) ends.pop_back();
    return ends.empty() || (nesting_ == Nesting::allowed && end_ns <= ends.back());
  }

  Nesting nesting_;
  std::vector<std::vector<std::uint64_t>> open_;  // by lane: ends of open slices, innermost last
};

}  // namespace warpstep::profiler
