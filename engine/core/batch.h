// The interface of a data source for the trainer: batches in order, and a position to save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/core/types.h"

namespace warpstep {

struct Position {  // of the next batch
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // inside the epoch

  bool operator==(const Position&) const = default;
};

// What a step reads of a batch, under the name of the graph's input:
//   images  u8 or f32 [batch, height, width, channels]; rows that are no samples are zero
//   tokens  i32 [batch * sequence]
//   order   i32 [batch * sequence], see Embed
//   labels  i32, one for each row of the logits; -1 where there is none
//   rows    RowPlan [batch]
struct BatchInput {
  std::string_view name;  // of a string that is never freed
  std::span<const std::byte> bytes;
};

// A view into one slot of the loader; valid until held() more calls of next(), or a seek() or the
// destructor.
struct Batch {
  Position position;
  std::vector<BatchInput> inputs;
  std::int64_t count = 0;  // labels that are not -1
  // What the mean loss is over: their class weights' sum, or their number where there are none.
  std::optional<double> weight;
  double loss_weight() const { return weight.value_or(static_cast<double>(count)); }
  std::span<const std::byte> slot;  // one piece of memory that holds the inputs
  std::uint64_t wait_ns = 0;        // how long next() waited for this batch
  std::uint64_t copy_wait_ns = 0;   // of that, for its copy to the device

  template <class T>
  void add(std::string_view name, std::span<T> values) {
    inputs.push_back({name, std::as_bytes(values)});
  }
  // Nothing if the batch has no such input.
  template <class T>
  std::span<const T> get(std::string_view name) const {
    for (const BatchInput& input : inputs)
      if (input.name == name)
        return {reinterpret_cast<const T*>(input.bytes.data()), input.bytes.size() / sizeof(T)};
    return {};
  }
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::int64_t batch_size() const = 0;        // samples of a slot
  virtual std::uint64_t samples() const = 0;          // in an epoch, before the tail policy
  virtual std::uint64_t steps_per_epoch() const = 0;  // batches in an epoch, after the tail policy
  // The next batch in order; continues into the next epoch without a gap. Throws DataError at a
  // batch with a broken sample, after all batches before it were delivered.
  virtual const Batch& next() = 0;
  // How many of the most recent batches stay in their slots; next()'s reference is to the last one.
  virtual int held() const { return 1; }
  // Where slots are given back in groups of so many batches, counted from the epoch's first: a
  // group ends when the next one's first batch is taken, and all its steps must be enqueued by
  // then. 0: one by one, as held() says.
  virtual std::uint64_t group() const { return 0; }
  virtual Position position() const = 0;     // of the batch that next() will return
  virtual void seek(Position position) = 0;  // O(1)
};

}  // namespace warpstep
