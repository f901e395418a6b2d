// What a loader tells of itself.
#include <algorithm>

#include "data/loader.h"

namespace warpstep::data {
namespace {

// Beside its images: the stack pages it touches, the tables of inflate and of the JPEG decoder, and
// what malloc keeps for a thread.
constexpr std::uint64_t worker_bytes = 1 << 20;

std::vector<StageTime> stages_of(const WorkerTimes& times, const std::vector<std::string>& names) {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  std::vector<StageTime> stages{{"wait", value(times.wait_ns)},
                                {"read", value(times.read_ns)},
                                {"decode", value(times.decode_ns)},
                                {"resize", value(times.resize_ns)}};
  for (std::size_t i = 0; i < names.size(); ++i)
    stages.push_back({names[i], value(times.transforms_ns[i])});
  stages.push_back({"pixels", value(times.pixels_ns)});
  stages.push_back({"copy", value(times.copy_ns)});
  return stages;
}

Encoding encoding_of(const Dataset& dataset) {
  try {
    Scratch scratch;
    return dataset.fetch(0, scratch).encoding;
  } catch (const std::exception&) {
    return Encoding::png;  // takes the most; the sample's turn will come
  }
}

}  // namespace

MemoryBound Loader::bound() const {
  const Dataset& dataset = maker_.dataset();
  std::uint64_t scratch = 0;
  if (options_.resident.empty()) {
    const Encoding encoding = encoding_of(dataset);
    const auto image = static_cast<std::uint64_t>(dataset.image_shape().count());
    const auto row = static_cast<std::uint64_t>(image_shape().count());
    // A PNG is whole before a window of it is taken, and its inflated rows beside it; a JPEG gives
    // the window. What is resized is there before, between its two passes and after.
    const std::uint64_t decoded = encoding == Encoding::png ? 2 * image : row;
    const std::uint64_t sized = options_.recipe.resizes() ? 2 * image : 0;
    scratch = dataset.max_fetched_bytes() + decoded + sized + 2 * row + worker_bytes;
  }
  return {.slots = slot_bytes(),
          .workers = states_.size() * scratch,
          .order = maker_.order_bytes(),
          .dataset = dataset.memory_bytes()};
}

LoaderStats Loader::stats() const {
  LoaderStats stats;
  for (const auto& state : states_) {
    WorkerStats worker;
    worker.stages = stages_of(state->times, options_.recipe.worker_names());
    worker.samples = state->times.samples.load(std::memory_order_relaxed);
    worker.bytes = state->times.bytes.load(std::memory_order_relaxed);
    stats.samples += worker.samples;
    stats.bytes += worker.bytes;
    if (stats.stages.empty()) {
      stats.stages = worker.stages;
    } else {
      for (std::size_t i = 0; i < worker.stages.size(); ++i)
        stats.stages[i].ns += worker.stages[i].ns;
    }
    stats.workers.push_back(std::move(worker));
  }
  stats.prefetch = options_.prefetch;
  const std::lock_guard lock(mutex_);
  stats.batches = taken_;
  stats.trainer_wait_ns = trainer_wait_ns_;
  stats.active = active_;
  stats.bad = bad_.size();
  stats.first_taken_ns = first_taken_ns_;
  if (taken_ > 0) {
    stats.last_taken_ns = timings_[(taken_ - 1) % timings_.size()].taken_ns;
    stats.mean_ready = static_cast<double>(ready_sum_) / static_cast<double>(taken_);
  }
  const std::uint64_t kept = std::min<std::uint64_t>(taken_, timings_.size());
  for (std::uint64_t i = taken_ - kept; i < taken_; ++i)
    stats.timings.push_back(timings_[i % timings_.size()]);
  return stats;
}

std::vector<BadSample> Loader::bad_samples(std::size_t from) const {
  const std::lock_guard lock(mutex_);
  return {bad_.begin() + static_cast<std::ptrdiff_t>(std::min(from, bad_.size())), bad_.end()};
}

}  // namespace warpstep::data
