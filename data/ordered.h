// Work on many threads whose results are taken in order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace warpstep::data {

// Calls make(thread, index) for every index below `count` on `workers` threads (0: all cores) and
// take(index, result) on this one, in rising order. At most 4 results a worker wait, whatever the
// count. What throws, throws here, in its turn, and ends it.
template <class Result, class Make, class Take>
void ordered_for(std::uint64_t count, int workers, const Make& make, const Take& take) {
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  if (workers <= 0) workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
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
    for (int thread = 0; thread < workers; ++thread) threads.emplace_back(run, thread);
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
