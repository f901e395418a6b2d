// Copies of data sets in few large files: as they are, made seekable, or decoded.
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

namespace warpstep::data {

// Work on many threads whose results are taken in order.

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

enum class PackTo : std::uint8_t {
  tar,      // shards of encoded samples
  encoded,  // safetensors of encoded samples
  decoded   // safetensors of images, all of one size
};

struct PackOptions {
  PackTo to = PackTo::tar;
  // JPEG files that are baseline get restart markers (make_seekable), losslessly; progressive ones
  // stay as they are.
  bool seekable = true;
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;                 // of tar
  int workers = 0;                                                      // 0: all cores
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // may be empty
};

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t files = 0;       // tar or safetensors
  std::uint64_t bytes = 0;       // of these files
  std::uint64_t from_bytes = 0;  // of the samples as they were
  std::uint64_t seekable = 0;    // JPEG files that can be read in part now
  std::uint64_t kept = 0;        // JPEG files that cannot: progressive
};

// Writes the splits that `from` has to the folder `out`, which must not exist or be empty: aside,
// as .NAME.tmp-PID in the same folder, renamed when all is whole and on the disk. The same samples
// give the same bytes for any number of workers. Throws DataError that names the sample or the file
// and leaves nothing behind.
PackSummary pack(const std::string& from, const std::string& out, const PackOptions& options = {});

// Where packed samples go; used by pack.cpp alone.

struct Packed {
  std::vector<std::uint8_t> bytes;
  Encoding encoding = Encoding::pixels;
  std::int32_t label = 0;
  std::uint32_t crc32c = 0;
  std::uint64_t from_bytes = 0;
  bool seekable = false;
};

class PackSink {
 public:
  virtual ~PackSink() = default;
  virtual void add(std::uint64_t index, const Packed& sample) = 0;  // indices rise by 1
  virtual std::pair<std::uint64_t, std::uint64_t> finish() = 0;     // files and their bytes
};

// Writes STEM-000000.tar ... or STEM.safetensors.
std::unique_ptr<PackSink> make_pack_sink(const Dataset& set, const std::string& stem, PackTo to,
                                         std::uint64_t shard_bytes);

// classes.txt. Throws DataError for a name that has a line's end in it.
std::string class_lines(const Dataset& set);

}  // namespace warpstep::data
