// `warpstep data pack`: copies a data set into few large files, as it is, with seekable JPEG files,
// or decoded.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/formats/dataset.h"
#include "engine/core/cpus.h"

namespace warpstep::data {

// Calls make(thread, index) for every index below `count` on `workers` threads (0: all cores) and
// take(index, result) on the calling thread in ascending order. At most 4 results per worker are
// waiting. An exception is rethrown here when its index is due, and ends the loop.
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

enum class PackTo : std::uint8_t {
  tar,      // shards of encoded samples
  encoded,  // safetensors of encoded samples
  decoded   // safetensors of decoded images, all of one size
};

struct PackOptions {
  PackTo to = PackTo::tar;
  // Baseline JPEG files get restart markers, losslessly (make_seekable); progressive ones stay as
  // they are.
  bool seekable = true;
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;                 // of tar
  int workers = 0;                                                      // 0: all cores
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // may be empty
};

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t files = 0;               // tar or safetensors
  std::uint64_t bytes = 0;               // of these files
  std::uint64_t from_bytes = 0;          // of the original samples
  std::uint64_t seekable = 0;            // JPEG files that can now be read in part
  std::uint64_t kept = 0;                // JPEG files that cannot: progressive
  std::vector<std::string> passed_over;  // files that are no samples: Dataset::passed_over()
};

// Writes the splits of `from` to the folder `out`, which must not exist or be empty. Writes to
// .NAME.tmp-PID next to it, which is renamed when everything is complete and synced to disk. The
// same samples give the same bytes for any number of workers. Throws DataError that names the
// sample or the file, and removes its files then.
PackSummary pack(const std::string& from, const std::string& out, const PackOptions& options = {});

}  // namespace warpstep::data
