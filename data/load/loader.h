// Batches in order, made ahead of time by worker threads straight in their final place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/load/batch_maker.h"
#include "data/load/ring.h"
#include "engine/core/batch.h"
#include "engine/core/record.h"

namespace warpstep::data {

// What a loader tells of itself, and what follows from it.

struct BatchTiming {  // on the steady clock
  Position position;
  std::uint64_t first_claim_ns = 0;  // a worker began with it
  std::uint64_t ready_ns = 0;        // its last sample was written
  std::uint64_t taken_ns = 0;        // next() gave it
};

struct StageTime {
  std::string name;  // "wait", "read", "decode", "resize", transforms by name, "pixels", "copy"
  std::uint64_t ns = 0;
};

struct WorkerStats {
  std::vector<StageTime> stages;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // read, before decoding
};

struct LoaderStats {  // since the loader was made
  std::vector<WorkerStats> workers;
  std::vector<StageTime> stages;  // sums over the workers
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;            // read, before decoding
  std::uint64_t batches = 0;          // taken
  std::uint64_t trainer_wait_ns = 0;  // of next() for a batch
  std::uint64_t first_taken_ns = 0;   // steady clock; 0 before the first
  std::uint64_t last_taken_ns = 0;
  double mean_ready = 0;             // batches that were ready when one was taken
  int prefetch = 0;                  // batches in the ring
  int active = 0;                    // workers that are not parked
  std::size_t bad = 0;               // rows that could not be decoded
  std::vector<BatchTiming> timings;  // of the last batches taken, oldest first

  std::uint64_t stage_ns(const std::string& name) const;  // 0 when there is none
};

// Memory that a loader may take at most, in bytes. Decoders of images that differ in size are
// counted by the set's first image, and without the coefficients of progressive JPEG files (2 bytes
// a number, all of the image at once).
struct MemoryBound {
  std::uint64_t slots = 0;
  std::uint64_t workers = 0;  // scratch and decoders
  std::uint64_t order = 0;
  std::uint64_t dataset = 0;  // tables, pixels kept

  std::uint64_t total() const { return slots + workers + order + dataset; }
  std::string text() const;  // "152.3 MiB: 3 slots ..."
};

// One line: who waits for whom, which stage takes the workers' time, and what would change it.
// "data: 2 workers, trainer waits 0.2 %, decode 91 %, read 4 %, ..." `encoding` is what the samples
// are stored as ("png", "jpeg", "packed jpeg", "pixels"), `most_workers` how many there could be.
std::string diagnose(const LoaderStats& stats, const std::string& encoding, int most_workers);

// What a batch holds depends on (seed, epoch, step) alone, never on workers, prefetch, world size
// or timing.
class Loader : public BatchSource {
 public:
  // Throws UsageError for options that cannot be meant, among them a batch that the data set cannot
  // fill once with Tail::drop, and a memory limit that does not suffice.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  Shape image_shape() const override { return maker_.image_shape(); }
  std::int64_t batch_size() const override { return options_.batch; }
  std::uint64_t samples() const override { return maker_.dataset().size(); }
  std::uint64_t steps_per_epoch() const override { return maker_.steps_per_epoch(); }
  const Batch& next() override;
  int held() const override { return options_.hold; }
  Position position() const override { return position_of(next_); }
  void seek(Position position) override;

  int workers() const { return static_cast<int>(states_.size()); }  // at most
  const MemoryBound& memory() const { return memory_bound_; }
  LoaderStats stats() const;  // may be called from any thread
  // What could not be decoded in the batches taken so far, in their order, from the `from`th on.
  std::vector<BadSample> bad_samples(std::size_t from = 0) const;
  std::size_t bad_count() const { return bad_count_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    SlotView view;
    std::uint64_t first_claim_ns = 0;
    std::uint64_t ready_ns = 0;
    std::mutex mutex;
    std::vector<BadSample> bad;
  };

  Position position_of(std::uint64_t batch) const {
    return {batch / maker_.steps_per_epoch(), batch % maker_.steps_per_epoch()};
  }
  std::uint64_t batch_of(Position position) const;
  std::size_t slot_bytes() const { return slots_.size() * maker_.layout().bytes; }
  MemoryBound bound() const;
  void allocate_slots();
  void start(std::uint64_t batch);
  void stop();
  void work(std::uint32_t worker);
  void accept(const Slot& slot);
  void note_taken(const Slot& slot, std::uint64_t wait_ns);

  LoaderOptions options_;
  BatchMaker maker_;
  std::int64_t claim_rows_ = 1;
  MemoryBound memory_bound_;
  std::unique_ptr<SlotMemory> heap_;
  std::byte* memory_ = nullptr;
  std::vector<Slot> slots_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<MakerState>> states_;
  std::vector<std::thread> threads_;

  std::uint64_t next_ = 0;         // batch that next() will give
  std::uint64_t taken_slots_ = 0;  // of the batches before it: what the trainer may still read
  Batch batch_;
  Tuner tuner_;
  record::Name ready_name_;           // arg: the batch
  record::Name depth_name_;           // arg: batches that are ready when one is taken
  mutable std::mutex mutex_;          // of what follows
  std::vector<BatchTiming> timings_;  // a ring of the last ones
  std::uint64_t taken_ = 0;
  std::uint64_t trainer_wait_ns_ = 0;
  std::uint64_t first_taken_ns_ = 0;
  std::uint64_t ready_sum_ = 0;  // of batches ready when one was taken
  int active_ = 0;
  std::vector<BadSample> bad_;
  std::atomic<std::size_t> bad_count_{0};  // of bad_, without the lock
  std::set<std::uint64_t> bad_indices_;
};

}  // namespace warpstep::data
