// How many workers a run needs, found while it runs; nothing in a batch depends on it.
#pragma once

#include <cstdint>

namespace warpstep::data {

// What the trainer saw between two next() calls.
struct TunerSample {
  std::uint64_t wait_ns = 0;  // for the batch
  std::uint64_t step_ns = 0;  // from batch to batch, the wait included
  bool full = false;          // all batches ahead were ready
};

// Over periods of 50 batches: a trainer that waits for more than 1 % of its time wakes a worker, a
// ring that is full nine times in ten parks one; each only after two periods in a row that say so.
// A worker that was missed after it was parked is not parked again.
class Tuner {
 public:
  static constexpr int period = 50;

  Tuner() = default;
  Tuner(int active, int most) : active_(active), most_(most) {}

  // True when active() has changed.
  bool observe(const TunerSample& sample);
  int active() const { return active_; }

 private:
  int active_ = 1, least_ = 1, most_ = 1;
  int samples_ = 0, full_ = 0, since_park_ = 1 << 20, hungry_periods_ = 0, full_periods_ = 0;
  std::uint64_t wait_ns_ = 0, step_ns_ = 0;
};

}  // namespace warpstep::data
