// Batches in order, made ahead of time by worker threads straight in their final place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/order.h"
#include "data/ring.h"
#include "engine/core/batch.h"

namespace warpstep::data {

enum class Tail : std::uint8_t {
  drop,  // samples that do not fill the last batch are left out of this epoch
  pad    // the last batch gets rows of zeros with label -1, which are not counted
};

// Where slots live. A backend may hand memory that its device can read directly.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // aligned to 64 bytes; throws on failure
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
};

struct LoaderOptions {
  std::int64_t batch = 128;  // rows
  int workers = 0;           // threads; 0: all cores but one, at most 4
  int prefetch = 3;          // batches in the ring, 2 or more: one is the trainer's
  int hold = 1;              // batches given last that stay valid; those beyond one add slots
  std::uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::drop;
  Position start;                // of the first batch
  SlotMemory* memory = nullptr;  // null: the heap; must outlive the loader
};

struct BatchTiming {  // on the steady clock
  Position position;
  std::uint64_t first_claim_ns = 0;  // a worker began with it
  std::uint64_t ready_ns = 0;        // its last sample was written
  std::uint64_t taken_ns = 0;        // next() gave it
};

struct LoaderStats {            // sums over all workers since the loader was made
  std::uint64_t wait_ns = 0;    // for a free slot: the trainer is slower than the loader
  std::uint64_t read_ns = 0;    // getting encoded bytes
  std::uint64_t decode_ns = 0;  // turning them into pixels
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;           // read, before decoding
  std::vector<BatchTiming> batches;  // the last ones taken, oldest first
};

// What a batch holds depends on (seed, epoch, step) alone, never on workers, prefetch or timing.
class Loader : public BatchSource {
 public:
  // Throws UsageError for options that cannot be meant, among them a batch that the data set cannot
  // fill once with Tail::drop.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  Shape image_shape() const override { return dataset_->image_shape(); }
  std::int64_t batch_size() const override { return options_.batch; }
  std::uint64_t samples() const override { return dataset_->size(); }
  std::uint64_t steps_per_epoch() const override { return steps_; }
  const Batch& next() override;
  int held() const override { return options_.hold; }
  Position position() const override { return position_of(next_); }
  void seek(Position position) override;

  int workers() const { return options_.workers; }
  std::size_t slot_bytes() const { return slots_.size() * slot_stride_; }  // of the whole ring
  LoaderStats stats() const;  // may be called from any thread

 private:
  struct Failure {
    std::int64_t row = 0;
    std::string message;
  };
  struct Slot {
    std::span<std::uint8_t> images;
    std::span<std::int32_t> labels;
    std::uint64_t first_claim_ns = 0;
    std::uint64_t ready_ns = 0;
    std::mutex mutex;
    std::optional<Failure> failure;  // of the lowest row, so that the message does not depend on
                                     // timing
  };
  struct Worker;  // counters of one thread

  Position position_of(std::uint64_t batch) const { return {batch / steps_, batch % steps_}; }
  std::uint64_t batch_of(Position position) const;
  std::int64_t rows_of(Position position) const;  // that are samples
  void allocate_slots();
  void start(std::uint64_t batch);
  void stop();
  void work(Worker& worker);
  void fill(const Ring::Claim& claim, Slot& slot, Worker& worker);
  void note_taken(const Slot& slot);

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  std::uint64_t steps_ = 0;
  std::int64_t claim_rows_ = 1;
  std::size_t slot_stride_ = 0;
  std::unique_ptr<SlotMemory> heap_;
  std::byte* memory_ = nullptr;
  std::vector<Slot> slots_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;

  std::uint64_t next_ = 0;         // batch that next() will give
  std::uint64_t taken_slots_ = 0;  // of the batches before it: what the trainer may still read
  Batch batch_;
  mutable std::mutex timings_mutex_;
  std::vector<BatchTiming> timings_;  // a ring of the last ones
  std::uint64_t taken_ = 0;
};

}  // namespace warpstep::data
