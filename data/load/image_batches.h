// Batches of images: which sample each row holds and how it is transformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "data/formats/dataset.h"
#include "data/load/batch_maker.h"
#include "data/load/order.h"
#include "engine/core/pixels.h"

namespace warpstep::data {

// The memory of one batch is one block: images, then labels, then row plans, each at a multiple of
// 64 bytes.
struct SlotLayout {
  std::size_t row_bytes = 0;  // of one image; 0 with a resident set
  std::size_t labels = 0, rows = 0, bytes = 0;

  SlotLayout(std::size_t image_row_bytes, std::int64_t batch);
};

template <class Byte>  // std::byte, or const
struct SlotParts {
  template <class T>
  using Like = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  std::span<Like<std::uint8_t>> images;
  std::span<Like<std::int32_t>> labels;
  std::span<Like<RowPlan>> plans;

  SlotParts(std::span<Byte> slot, const SlotLayout& layout, std::int64_t batch)
      : images(reinterpret_cast<Like<std::uint8_t>*>(slot.data()), layout.row_bytes * idx(batch)),
        labels(reinterpret_cast<Like<std::int32_t>*>(slot.data() + layout.labels), idx(batch)),
        plans(reinterpret_cast<Like<RowPlan>*>(slot.data() + layout.rows), idx(batch)) {}
};
using SlotView = SlotParts<std::byte>;

// Of a row that holds a transformed sample: [height, width, channels].
Shape row_shape(const Dataset& dataset, const Recipe& recipe);

// Where the row [height, width] of this image comes from. Throws DataError, naming the image, if
// the recipe makes no such row of it; `evaluates` is for the fix.
Geometry row_geometry(const Dataset& dataset, std::uint64_t index, const Shape& image,
                      const Recipe& recipe, const Draw& draw, const Shape& row, bool evaluates);

// Reads the headers of the samples, of a large set evenly spread ones, and throws the DataError of
// the first whose header is broken or that has no row_geometry() for evaluation.
void require_rows(const Dataset& dataset, const Recipe& recipe, std::uint64_t most = 1'000);

class ImageBatches final : public BatchMaker {
 public:
  // Throws UsageError for invalid options.
  ImageBatches(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  std::string path() const override { return dataset_->path(); }
  std::string name(std::uint64_t index) const override { return dataset_->name(index); }
  std::string class_name(std::uint64_t index) const override {
    const std::vector<std::string>& classes = dataset_->classes();
    const auto label = static_cast<std::size_t>(dataset_->label(index));
    return label < classes.size() ? classes[label] : "";  // images to predict have no class
  }
  std::string sample_text() const override { return "images of " + shape_.text(); }
  std::uint64_t samples() const override { return dataset_->size(); }
  std::uint64_t steps_per_epoch() const override { return steps_; }
  std::int64_t batch() const override { return options_.batch; }
  std::size_t slot_bytes() const override { return layout_.bytes; }
  std::int64_t claim() const override;
  std::vector<std::string> stages() const override { return options_.recipe.worker_names(); }
  bool is_light() const override { return is_resident_; }
  std::uint64_t worker_bytes() const override;
  std::uint64_t order_bytes() const override { return order_.bytes(); }
  std::uint64_t data_bytes() const override { return dataset_->memory_bytes(); }

  void fill(Position position, std::int64_t begin, std::int64_t end, std::span<std::byte> slot,
            MakerState& state, std::vector<BadSample>& bad,
            const std::function<bool()>& stop) override;
  // Replaces the bad rows and pairs the rows that mix.
  void finish(Position position, std::span<std::byte> slot, MakerState& state,
              std::vector<BadSample>& bad) const override;
  void prepare_next(Position position) override;
  void describe(std::span<const std::byte> slot, Batch& batch) const override;

 private:
  std::int64_t rows_of(Position position) const;  // rows that hold samples; the rest is padding
  void make_row(std::uint64_t index, Position position, std::int64_t row, const SlotView& slot,
                MakerState& state) const;
  void gather_row(const Draw& draw, RowPlan& plan) const;
  void decode_row(std::uint64_t index, const Draw& draw, const RowPlan& plan,
                  std::span<std::uint8_t> image, MakerState& state) const;
  void pad_row(std::int64_t row, const SlotView& slot) const;
  void hint(Position position, std::int64_t row, const EpochOrder& order) const;
  // The row's place in the epoch's order.
  std::uint64_t place_of(Position position, std::int64_t row) const;
  std::span<std::uint8_t> image_of(const SlotView& slot, std::int64_t row) const {
    return slot.images.subspan(idx(row) * layout_.row_bytes, layout_.row_bytes);
  }
  std::uint64_t ticket(Position position, std::int64_t row) const {  // counted through all epochs
    return (position.epoch * steps_ + position.step) * static_cast<std::uint64_t>(options_.batch) +
           static_cast<std::uint64_t>(row);
  }
  BadSample bad_sample(std::uint64_t index, Position position, std::int64_t row,
                       const std::string& what) const;
  void replace_bad(const SlotView& slot, std::int64_t samples, std::vector<BadSample>& bad) const;
  bool copy_good_row(const SlotView& slot, std::int64_t row, const std::vector<char>& is_bad) const;
  static void pair_neighbours(const SlotView& slot);

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Shape shape_;
  SlotLayout layout_;
  std::uint64_t global_batch_ = 0;
  std::uint64_t steps_ = 0;
  bool is_resident_ = false;
  bool plans_rows_ = false;  // the recipe sets gain, mask or mixing of rows
  Order order_;
};

}  // namespace warpstep::data
