// The loader: worker threads make batches ahead of time, directly in the memory that the trainer
// reads; next() returns them in order. Its statistics say which side waits, and why.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "data/load/batch_maker.h"
#include "data/load/ring.h"
#include "engine/core/batch.h"
#include "engine/core/record.h"

namespace warpstep::data {

struct StageTime {
  std::string name;  // "wait", "read", "decode", "resize", transforms by name, "pixels", "copy"
  std::uint64_t ns = 0;
};

struct WorkerStats {
  std::vector<StageTime> stages;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;   // read, before decoding
  std::uint64_t cpu_ns = 0;  // its thread's time on a core
};

struct SlowSample {
  std::string name;        // its file, or its place in one
  std::string class_name;  // "": it has none
  std::uint64_t ns = 0;
};

struct LoaderStats {  // since the loader was made
  std::vector<WorkerStats> workers;
  std::vector<StageTime> stages;  // sums over the workers
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;            // read, before decoding
  std::uint64_t cpu_ns = 0;           // of the workers
  std::uint64_t batches = 0;          // taken
  std::uint64_t trainer_wait_ns = 0;  // sum over next()
  std::uint64_t first_taken_ns = 0;   // steady clock; 0 before the first
  std::uint64_t last_taken_ns = 0;
  double mean_ready = 0;            // batches ready when the trainer came for one
  int prefetch = 0;                 // batches in the ring
  int active = 0;                   // workers that are not parked
  std::size_t bad = 0;              // rows that could not be decoded
  std::vector<SlowSample> slowest;  // of all workers, the slowest first

  std::uint64_t stage_ns(const std::string& name) const;  // 0 when there is none
};

// The most memory that a loader may use, in bytes. Where images differ in size, decoders are
// counted for the set's first image, and without the coefficients of progressive JPEG files (2
// bytes per coefficient, of the whole image at once).
struct MemoryBound {
  std::uint64_t slots = 0;
  std::uint64_t workers = 0;  // scratch and decoders
  std::uint64_t order = 0;
  std::uint64_t dataset = 0;  // tables and cached pixels

  std::uint64_t total() const { return slots + workers + order + dataset; }
  std::string text() const;  // "152.3 MiB (slots 120.0, workers 8.1, ...)"
};

// Of a loader of these batches.
MemoryBound memory_bound(const BatchMaker& maker, const LoaderOptions& options);

// One line: how long the trainer waits, which stage uses the workers' time, and which option would
// change that: "data: 2 workers, trainer waits 0.2 %, decode 91 %, read 4 %, ...". `encoding` of
// the stored samples: "png", "jpeg", "packed jpeg", "pixels", "resident", or "encoded" for images
// that cannot be stored as pixels; `most_workers` is how many workers the machine allows.
std::string diagnose(const LoaderStats& stats, const std::string& encoding, int most_workers);

// What a batch holds depends on (seed, epoch, step) alone, never on workers, prefetch, world size
// or timing.
class Loader : public BatchSource {
 public:
  // Throws UsageError for invalid options: among others a batch larger than the data set with
  // Tail::drop, a memory limit that is too low, and a maker of another batch size.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  Loader(std::unique_ptr<BatchMaker> maker, const LoaderOptions& options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batch_size() const override { return options_.batch; }
  std::uint64_t samples() const override { return maker_->samples(); }
  std::uint64_t steps_per_epoch() const override { return maker_->steps_per_epoch(); }
  // UsageError in a forked process, which lacks the threads; seek() also. There it can be
  // destroyed.
  const Batch& next() override;
  int held() const override { return options_.hold; }
  Position position() const override { return position_of(next_); }
  // Where a worker cannot be started, this and all that wait for a batch throw the same Error,
  // until another seek() succeeds.
  void seek(Position position) override;
  // Whether next() would return at once; sleeps for it, at most this long, in short pieces: unlike
  // next() for threads that must look after something else as well. The workers continue meanwhile.
  // next() adds the time to that of its own wait.
  bool ready_within(std::chrono::nanoseconds longest);
  // Gives away the memory of the batch that next() just returned, which stays as it is, in exchange
  // for `other`, of as many bytes and aligned alike, which the workers fill instead. At most once
  // per batch, and with hold 1 only.
  std::span<std::byte> exchange(std::span<std::byte> other);

  int workers() const { return static_cast<int>(states_.size()); }  // at most
  const MemoryBound& memory() const { return memory_bound_; }
  LoaderStats stats() const;  // may be called from any thread
  // The samples of the batches taken so far that could not be decoded, in their order, from number
  // `from` on.
  std::vector<BadSample> bad_samples(std::size_t from = 0) const;
  std::size_t bad_count() const { return bad_count_.load(std::memory_order_relaxed); }
  // A sample that an earlier process of the run could not decode: it counts for max_bad, too.
  void know_bad(std::uint64_t index);
  std::size_t batch_bytes() const { return maker_->slot_bytes(); }  // of a batch's memory

 private:
  struct Slot {
    std::span<std::byte> bytes;
    std::mutex mutex;
    std::vector<BadSample> bad;
  };

  Position position_of(std::uint64_t batch) const {
    return {batch / maker_->steps_per_epoch(), batch % maker_->steps_per_epoch()};
  }
  std::uint64_t batch_of(Position position) const;
  Slot& slot_of(std::uint64_t batch) { return slots_[batch % slots_.size()]; }
  std::size_t slot_bytes() const { return slots_.size() * maker_->slot_bytes(); }
  std::vector<SlowSample> slowest() const;
  void allocate_slots();
  void start(std::uint64_t batch);
  void start_threads();
  void require_started() const;
  void require_own_process() const;
  void stop();
  void work(std::uint32_t worker);
  void release_old_batches();
  std::uint64_t wait_for(std::uint64_t batch) const;
  void accept(const Slot& slot);
  void note_taken(std::uint64_t wait_ns, std::uint32_t ready);

  LoaderOptions options_;
  std::unique_ptr<BatchMaker> maker_;
  std::int64_t claim_rows_ = 1;
  MemoryBound memory_bound_;
  std::unique_ptr<SlotMemory> heap_;
  std::byte* memory_ = nullptr;
  std::vector<Slot> slots_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<MakerState>> states_;
  std::vector<std::thread> threads_;
  std::exception_ptr failure_;  // of the last start()
  pid_t process_ = 0;           // that the threads are in

  std::uint64_t next_ = 0;         // the batch that next() will return
  std::uint64_t counted_ = 0;      // 1 + the batch whose broken samples were last added to bad_
  std::uint64_t waited_ns_ = 0;    // for that batch, in ready_within()
  std::uint64_t oldest_held_ = 0;  // the trainer may still read the batches [oldest_held_, next_)
  Batch batch_;
  Tuner tuner_;
  record::Name ready_name_;   // arg: the batch
  record::Name depth_name_;   // arg: batches ready when the trainer comes for one
  mutable std::mutex mutex_;  // of all members below
  std::uint64_t taken_ = 0;
  std::uint64_t trainer_wait_ns_ = 0;
  std::uint64_t first_taken_ns_ = 0;
  std::uint64_t last_taken_ns_ = 0;
  std::uint64_t ready_sum_ = 0;  // sum of the batches ready at each next()
  int active_ = 0;
  std::vector<BadSample> bad_;
  std::atomic<std::size_t> bad_count_{0};  // size of bad_, read without the lock
  std::set<std::uint64_t> bad_indices_;
};

}  // namespace warpstep::data
