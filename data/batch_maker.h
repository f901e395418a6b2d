// What stands in each row of each batch: arithmetic in (seed, epoch, step, row), without threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/develop.h"
#include "data/loader_options.h"

namespace warpstep::data {

// The memory of one batch: one piece, images first, then labels, then rows, each at a multiple of
// 64 bytes.
struct SlotLayout {
  std::size_t row_bytes = 0;  // of one image; 0 with a resident set
  std::size_t labels = 0, rows = 0, bytes = 0;

  SlotLayout(std::size_t image_row_bytes, std::int64_t batch);
};

struct SlotView {
  std::span<std::byte> bytes;
  std::span<std::uint8_t> images;
  std::span<std::int32_t> labels;
  std::span<RowPlan> plans;

  SlotView() = default;
  SlotView(std::byte* memory, const SlotLayout& layout, std::int64_t batch);
};

// A row whose sample could not be had.
struct BadSample {
  std::uint64_t index = 0;  // of the data set
  Position position;
  std::int64_t row = 0;
  std::string message;  // names file, byte, sample, epoch and step
  bool fatal = false;   // ends the run whatever the policy is
};

// Times of one worker, one writer each.
struct WorkerTimes {
  std::atomic<std::uint64_t> wait_ns{0}, read_ns{0}, decode_ns{0}, resize_ns{0}, pixels_ns{0},
      copy_ns{0}, samples{0}, bytes{0};
  std::vector<std::atomic<std::uint64_t>> transforms_ns;  // by Recipe::worker_names()

  explicit WorkerTimes(std::size_t transforms) : transforms_ns(transforms) {}
};

// One worker's state; made anew by nobody, so that buffers are kept.
struct MakerState {
  explicit MakerState(std::size_t transforms) : times(transforms), transforms_ns(transforms) {}

  Developer developer;
  std::vector<std::uint8_t> bytes;          // of a row whose numbers are made here too
  std::uint64_t epoch = ~std::uint64_t{0};  // in which the set was last found unchanged
  WorkerTimes times;
  std::vector<std::uint64_t> transforms_ns;
};

class BatchMaker {
 public:
  // Throws UsageError for options that cannot be meant.
  BatchMaker(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  const Shape& image_shape() const { return shape_; }  // of a row: [height, width, channels]
  const SlotLayout& layout() const { return layout_; }
  std::uint64_t steps_per_epoch() const { return steps_; }
  std::int64_t rows_of(Position position) const;  // that are samples
  std::size_t order_bytes() const { return order_.bytes(); }

  // Writes rows [begin, end) of a batch; what cannot be had is added to `bad`. Ends early once
  // *stop is set.
  void fill(Position position, std::int64_t begin, std::int64_t end, const SlotView& slot,
            MakerState& state, std::vector<BadSample>& bad, const std::function<bool()>& stop);
  // When all rows are there: what becomes of the bad ones, and the pairs of mixing. Changes the
  // order of `bad` to that of the rows.
  void finish(Position position, const SlotView& slot, std::vector<BadSample>& bad) const;
  // Half an epoch early, so that nobody waits for the next permutation at the boundary.
  void prepare_next(Position position);

 private:
  void make_row(std::uint64_t index, Position position, std::int64_t row, const SlotView& slot,
                MakerState& state) const;
  void hint(Position position, std::int64_t row, const EpochOrder& order) const;
  std::uint64_t place_of(Position position, std::int64_t row) const;
  std::uint64_t ticket(Position position, std::int64_t row) const {  // counted through all epochs
    return (position.epoch * steps_ + position.step) * static_cast<std::uint64_t>(options_.batch) +
           static_cast<std::uint64_t>(row);
  }
  BadSample bad_sample(std::uint64_t index, Position position, std::int64_t row,
                       const std::string& what) const;
  void replace(const SlotView& slot, std::int64_t samples, std::vector<BadSample>& bad) const;
  void pair(const SlotView& slot) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Shape shape_;
  SlotLayout layout_;
  std::uint64_t global_batch_ = 0;
  std::uint64_t steps_ = 0;
  bool is_resident_ = false;
  bool plans_rows_ = false;
  Order order_;
};

}  // namespace warpstep::data
