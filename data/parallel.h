// The same work for many indices on many threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/signals.h"

namespace warpstep::data {

// Calls work(thread, index) for every index below count, in any order, on `workers` threads (0: all
// cores). The first exception ends it and is thrown here.
inline void parallel_for(std::uint64_t count, int workers,
                         const std::function<void(int, std::uint64_t)>& work) {
  if (workers <= 0) workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&](int thread) {
    try {
      for (std::uint64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(thread, i);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    const SignalsBlocked blocked;  // no handler may run in them
    try {
      for (int thread = 1; thread < workers; ++thread) threads.emplace_back(run, thread);
    } catch (const std::system_error& reason) {
      next.store(count);
      fail<Error>("a thread cannot be started: {}; use fewer --workers", reason.code().message());
    }
    run(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace warpstep::data
