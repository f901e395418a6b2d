// Loops on many threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/core/cpus.h"

namespace warpstep::data {

// Starts threads in which no signal handler runs, each with run(number), for the numbers from
// `first` to `end`. Throws Error when the system cannot start one; those before it are running.
void start_workers(std::vector<std::jthread>& threads, int first, int end,
                   const std::function<void(int)>& run);

// Calls work(thread, index) for every index below count, in any order, on `workers` threads (0: all
// cores). The first exception ends the loop and is rethrown here.
void parallel_for(std::uint64_t count, int workers,
                  const std::function<void(int, std::uint64_t)>& work);

// Calls make(thread, index) for every index below `count` on `workers` threads (0: all cores) and
// take(index, result) on the calling thread in ascending order. At most 4 results per worker are
// waiting. An exception is rethrown here when its index is due, and ends the loop. Throws Error as
// start_workers() does.
template <class Result, class Make, class Take>
void ordered_for(std::uint64_t count, int workers, const Make& make, const Take& take) {
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  if (workers <= 0) workers = allowed_cores();
  const std::uint64_t room = 4 * static_cast<std::uint64_t>(workers);
  std::vector<std::optional<Outcome>> outcomes(room);  // of index i at i % room
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t claimed = 0;
  std::uint64_t taken = 0;
  bool stop = false;
  const auto run = [&](int thread) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || claimed == count || claimed < taken + room; });
      if (stop || claimed == count) return;
      const std::uint64_t index = claimed++;
      lock.unlock();
      Outcome outcome;
      try {
        outcome.result.emplace(make(thread, index));
      } catch (...) {
        outcome.error = std::current_exception();
      }
      lock.lock();
      outcomes[index % room] = std::move(outcome);
      changed.notify_all();
    }
  };
  std::vector<std::jthread> threads;
  const auto end = [&] {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    threads.clear();
  };
  try {
    start_workers(threads, 0, workers, run);
    for (std::uint64_t index = 0; index < count; ++index) {
      std::optional<Outcome> outcome;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return outcomes[index % room].has_value(); });
        outcome = std::exchange(outcomes[index % room], std::nullopt);
        taken = index + 1;
      }
      changed.notify_all();
      if (outcome->error) std::rethrow_exception(outcome->error);
      take(index, std::move(*outcome->result));
    }
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace warpstep::data
