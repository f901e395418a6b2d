// The ring decides which thread may touch which batch slot when; it holds no data itself. The tuner
// decides how many workers take part.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace warpstep::data {

// Batches are numbered from 0; batch b is in slot b % slots. A batch consists of `claims` claims,
// which workers take in order: all claims of a batch before the first of the next. A worker whose
// batch is `slots` or more ahead of the consumer sleeps. There is no deadlock: because claims are
// taken in order, running workers always hold the oldest unfinished batch.
//
// One consumer: wait(), release() in turn. Any number of workers: claim(), finish() in turn.
class Ring {
 public:
  struct Claim {
    std::uint64_t batch = 0;
    std::uint32_t part = 0;     // in [0, claims)
    std::uint64_t wait_ns = 0;  // how long the worker slept for a free slot
  };

  Ring(std::uint32_t slots, std::uint32_t claims);

  std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }

  // Worker: the next claim of worker number `worker`. Sleeps while this worker is parked, then
  // while the ring is full. Empty after stop().
  std::optional<Claim> claim(std::uint32_t worker = 0);
  // Worker: this claim's rows are written. True for the last claim of a batch: that worker must
  // call publish(), and may write what concerns the whole batch before it does.
  bool finish(const Claim& claim);
  void publish(const Claim& claim);

  // Consumer: parks the workers from number `count` on; `count` is at least 1.
  void set_active(std::uint32_t count);
  // Consumer: batches that are ready.
  std::uint32_t ready_count() const;
  // Consumer: whether batch `batch`, the oldest not released, is ready.
  bool ready(std::uint64_t batch) const;
  // Consumer: sleeps until that batch is ready.
  void wait(std::uint64_t batch) const;
  // Consumer: returns the slot of `batch`, the oldest one, to the workers.
  void release(std::uint64_t batch);

  // Makes claim() return empty in all workers, and stopping() true.
  void stop();
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }
  // Restarts at batch `first`. No worker may be inside claim() or between claim() and publish().
  void reset(std::uint64_t first);

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> left{0};   // claims not finished
    std::atomic<std::uint32_t> ready{0};  // 1: complete, the consumer may read it
  };

  bool is_free(std::uint64_t batch) const {
    return batch < released_.load(std::memory_order_acquire) + slots_.size();
  }

  const std::uint32_t claims_;
  std::vector<Slot> slots_;
  alignas(64) std::atomic<std::uint64_t> ticket_{0};    // claims taken since reset()
  std::uint64_t first_ = 0;                             // batch of the first ticket
  alignas(64) std::atomic<std::uint64_t> released_{0};  // all batches below this one are released
  // Changes whenever released_, active_ or stop_ does; workers sleep on it.
  std::atomic<std::uint32_t> news_{0};
  std::atomic<std::uint32_t> active_{1U << 31};
  std::atomic<bool> stop_{false};
};

// What the trainer measured between two next() calls.
struct TunerSample {
  std::uint64_t wait_ns = 0;  // for the batch
  std::uint64_t step_ns = 0;  // from batch to batch, the wait included
  bool full = false;          // all slots were ready
};

// Finds how many workers a run needs while it runs; the content of batches does not depend on it.
// Works in periods of 50 batches: when the trainer waits for more than 1 % of the time, a worker is
// woken; when the ring is full more than nine times in ten, one is parked; each after two such
// periods in a row. When parking a worker soon makes the trainer wait, it is not parked again.
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
