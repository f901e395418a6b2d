// A recipe: the transforms between an image and a row of the batch, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/transforms/transform.h"
#include "engine/core/record.h"

namespace warpstep::data {

class Recipe {
 public:
  Recipe() = default;  // the image as it is
  // "random-crop=32:pad=4,flip,normalize". Throws UsageError naming the invalid part.
  explicit Recipe(std::string_view text);
  explicit Recipe(std::vector<TransformPtr> transforms);

  std::string text() const;
  const std::vector<TransformPtr>& transforms() const { return transforms_; }
  // The same without randomness: random crops become centre crops; no jitter, masks and mixing.
  Recipe for_evaluation() const;

  // Height and width of every row; those of the image if no transform sets them.
  ImageExtent extent(const Shape& image) const;
  bool sets_extent() const;  // images may be of any size
  Geometry geometry(const Shape& image, const Draw& draw) const;
  // Whether every row is a window of its image, mirrored or not, so that a device can gather it
  // from a resident set.
  bool is_gathered() const { return not_gathered().empty(); }
  std::string not_gathered() const;  // the transform because of which they are not; else empty
  bool resizes() const;
  bool uses_rows() const;  // the device needs each row's RowPlan to make its pixels
  // Gain, offset, mask and mixing of a row of this size.
  void row(RowPlan& plan, const Draw& draw, const ImageExtent& row) const;
  void apply(const RowImage& image, const Draw& draw, std::span<std::uint64_t> ns) const;
  std::vector<std::string> worker_names() const;  // the transforms that apply() times, in order

  // The affine map of all colour transforms. `mean` and `std` of x / 255 are for normalize, which
  // is implied in a recipe that has neither normalize nor scale. Throws UsageError when it needs
  // them and they have other lengths than `channels`, or numbers that give no finite ones; also for
  // more than 3 channels, or none.
  PixelPlan pixels(int channels, const std::vector<double>& mean,
                   const std::vector<double>& std) const;
  bool normalizes() const;  // it needs mean and std
  bool has(std::string_view name) const;
  // Whether its only change of pixel values is to normalise each channel.
  bool is_plain() const;
  bool mixes() const;

 private:
  void put_yuv_before_scale();
  void check();
  void check_geometry() const;

  std::vector<TransformPtr> transforms_;
  std::vector<std::uint32_t> first_fields_;  // first field of each one's draws: a hash of its name
  std::vector<record::Name> span_names_;     // by transform
};

// UsageError: mean and std are measured on the channels of the images, not on those of yuv.
[[noreturn]] void refuse_statistics_of_yuv();
// The mean and std of a run are of the channels that its own recipe makes. UsageError where `now`
// normalises with them and has yuv and the run's recipe has not, or the reverse.
void require_channels_of(const Recipe& run, const Recipe& now);

}  // namespace warpstep::data
