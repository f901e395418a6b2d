// The ordered ring of batches in the making. It holds no data: only who may touch which slot when.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace warpstep::data {

// Batches are numbered from 0; batch b lives in slot b % slots. A batch is made of `claims` claims,
// which workers take in order, all of them from the same batch first. A worker whose batch is more
// than `slots` ahead of the consumer sleeps. There is no deadlock: claims are taken in order, so
// the oldest unfinished batch is always in running hands.
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

  // Worker `worker`: the next claim; sleeps while the ring is full, and before that while it is
  // not among the active ones. Nothing after stop().
  std::optional<Claim> claim(std::uint32_t worker = 0);
  // Worker: this claim's rows are written. True for the last of its batch, which must then be
  // handed over with publish(); in between the worker may write what concerns the whole batch.
  bool finish(const Claim& claim);
  void publish(const Claim& claim);

  // Consumer: workers from `count` on, at least 1, sleep until they are wanted again.
  void set_active(std::uint32_t count);
  // Consumer: batches that are ready.
  std::uint32_t ready_count() const;
  // Consumer: whether batch `batch`, the oldest not released, is ready.
  bool ready(std::uint64_t batch) const;
  // Consumer: sleeps until it is.
  void wait(std::uint64_t batch) const;
  // Consumer: gives the slot of `batch`, the oldest one, back.
  void release(std::uint64_t batch);

  // Makes all workers leave claim() with nothing, and stopping() true.
  void stop();
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }
  // Starts anew at batch `first`. No worker may be inside.
  void reset(std::uint64_t first);

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> left{0};   // claims not finished
    std::atomic<std::uint32_t> ready{0};  // 1: the consumer's
  };

  bool is_free(std::uint64_t batch) const {
    return batch < released_.load(std::memory_order_acquire) + slots_.size();
  }

  const std::uint32_t claims_;
  std::vector<Slot> slots_;
  alignas(64) std::atomic<std::uint64_t> ticket_{0};    // claims taken since reset()
  std::uint64_t first_ = 0;                             // batch of the first ticket
  alignas(64) std::atomic<std::uint64_t> released_{0};  // all batches below are done with
  // Changes with released_, active_ and stop_: what workers sleep on.
  std::atomic<std::uint32_t> news_{0};
  std::atomic<std::uint32_t> active_{1U << 31};
  std::atomic<bool> stop_{false};
};

// How many workers a run needs, found while it runs; nothing in a batch depends on it.

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
