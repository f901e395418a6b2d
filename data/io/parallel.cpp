#include "data/io/parallel.h"

#include <atomic>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/thread.h"

namespace warpstep::data {

void start_workers(std::vector<std::jthread>& threads, int first, int end,
                   const std::function<void(int)>& run) {
  const SignalsBlocked blocked;
  try {
    for (int thread = first; thread < end; ++thread) threads.emplace_back(run, thread);
  } catch (const std::system_error& reason) {
    fail<Error>("cannot start a thread: {}; use fewer --workers", reason.code().message());
  }
}

void parallel_for(std::uint64_t count, int workers,
                  const std::function<void(int, std::uint64_t)>& work) {
  if (workers <= 0) workers = allowed_cores();
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
    try {
      start_workers(threads, 1, workers, run);
    } catch (...) {
      next.store(count);
      throw;
    }
    run(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace warpstep::data
