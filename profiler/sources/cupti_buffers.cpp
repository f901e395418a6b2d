#include "profiler/sources/cupti_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace warpstep::profiler {

BufferPool::~BufferPool() {
  for (std::uint8_t* memory : all_) std::free(memory);
}

std::uint8_t* BufferPool::give() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      std::uint8_t* memory = spare_.back();
      spare_.pop_back();
      return memory;
    }
    if (all_.size() < limits_.count) {
      all_.reserve(limits_.count);
      spare_.reserve(limits_.count);
      if (auto* memory = static_cast<std::uint8_t*>(std::calloc(limits_.bytes, 1))) {
        all_.push_back(memory);
        return memory;
      }
    }
    ++declined_;
  } catch (...) {  // the caller is C
  }
  return nullptr;
}

void BufferPool::take(std::uint8_t* memory, std::size_t bytes) noexcept {
  if (!memory) return;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (bytes == 0)
        spare_.push_back(memory);
      else
        full_.push_back({memory, std::min(bytes, limits_.bytes)});
    }
    filled_.notify_one();
  } catch (...) {  // without memory for the queue the buffer's records are lost, and so is it
  }
}

bool BufferPool::next(FilledBuffer& buffer, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, patience, [&] { return stopped_ || !full_.empty(); });
  if (full_.empty()) return false;
  buffer = full_.front();
  full_.pop_front();
  return true;
}

void BufferPool::recycle(const FilledBuffer& buffer) {
  std::memset(buffer.memory, 0, limits_.bytes);  // here rather than on a thread of the training
  const std::lock_guard lock(mutex_);
  spare_.push_back(buffer.memory);
}

void BufferPool::stop_waiting(bool stop) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = stop;
  }
  filled_.notify_all();
}

std::uint64_t BufferPool::declined() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t count = declined_;
  declined_ = 0;
  return count;
}

}  // namespace warpstep::profiler
