// The interface of a data source for the trainer: batches in order, and a position to save.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/pixels.h"
#include "engine/core/types.h"

namespace warpstep {

struct Position {  // of the next batch
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // inside the epoch

  bool operator==(const Position&) const = default;
};

// A view into one slot of the loader; valid until held() more calls of next(), or a seek() or the
// destructor.
struct Batch {
  Position position;
  // [batch, height, width, channels], rows beyond count are zero
  std::span<const std::uint8_t> images;
  std::span<const std::int32_t> labels;  // [batch], -1 in rows that are no samples
  std::span<const RowPlan> rows;         // [batch]
  std::int64_t count = 0;                // rows that are samples
  std::span<const std::byte> slot;       // one piece of memory that holds all of these
  std::uint64_t wait_ns = 0;             // how long next() waited for this batch
  std::uint64_t copy_wait_ns = 0;        // of that, for its copy to the device
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Shape image_shape() const = 0;              // [height, width, channels]
  virtual std::int64_t batch_size() const = 0;        // rows of a slot
  virtual std::uint64_t samples() const = 0;          // in an epoch, before the tail policy
  virtual std::uint64_t steps_per_epoch() const = 0;  // batches in an epoch, after the tail policy
  // The next batch in order; continues into the next epoch without a gap. Throws DataError at a
  // batch with a broken sample, after all batches before it were delivered.
  virtual const Batch& next() = 0;
  // How many of the most recent batches stay in their slots; next()'s reference is to the last one.
  virtual int held() const { return 1; }
  virtual Position position() const = 0;     // of the batch that next() will return
  virtual void seek(Position position) = 0;  // O(1)
};

}  // namespace warpstep
