// The memory that CUPTI fills with records: a few large buffers that go round.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace warpstep::profiler {

struct BufferLimits {
  std::size_t bytes = std::size_t{4} << 20;  // of a buffer: ~15,000 launches
  std::size_t count = 32;                    // 128 MiB, then CUPTI drops and counts
};

// A buffer with records; its memory goes back to the pool.
struct FilledBuffer {
  std::uint8_t* memory = nullptr;
  std::size_t bytes = 0;  // of records
};

class BufferPool {
 public:
  explicit BufferPool(const BufferLimits& limits) : limits_(limits) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // CUPTI's side, called from its threads: zeroed memory, or null when there are enough.
  std::uint8_t* give() noexcept;
  void take(std::uint8_t* memory, std::size_t bytes) noexcept;

  // The reader's side. False after `patience` without a buffer, or at once when nobody is to wait.
  bool next(FilledBuffer& buffer, std::chrono::milliseconds patience);
  void recycle(const FilledBuffer& buffer);
  void stop_waiting(bool stop);  // until the other is said

  std::size_t bytes() const { return limits_.bytes; }
  std::uint64_t declined();  // requests since the last call

 private:
  const BufferLimits limits_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<std::uint8_t*> spare_, all_;  // with room for all, so that callbacks only move
  std::deque<FilledBuffer> full_;
  std::uint64_t declined_ = 0;
  bool stopped_ = false;
};

}  // namespace warpstep::profiler
