// The built-in transforms of the geometry: crops, flips and sizes.
#include <algorithm>
#include <cmath>
#include <string>

#include "data/transforms/transform.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::string text_of(const ImageExtent& extent) {
  return extent.height == extent.width ? fmt::format("{}", extent.height)
                                       : fmt::format("{}x{}", extent.height, extent.width);
}

// Sets a window of the present row, which may be mirrored already.
void set_window(Geometry& geometry, std::int64_t y, std::int64_t x, const ImageExtent& size) {
  if (geometry.mirrored) x = geometry.out.width - x - size.width;
  geometry.out = {geometry.out.y + y, geometry.out.x + x, size.height, size.width};
}

void require_room(const Geometry& geometry, const ImageExtent& size, std::int64_t padding,
                  std::string_view who) {
  if (size.height <= geometry.out.height + 2 * padding &&
      size.width <= geometry.out.width + 2 * padding)
    return;
  fail<DataError>("{} x {} pixels are too few for {}={}; resize first, for example resize={},{}={}",
                  geometry.out.width, geometry.out.height, who, text_of(size),
                  std::max(size.height, size.width), who, text_of(size));
}

class Crop final : public Transform {
 public:
  Crop(const ImageExtent& size, std::int64_t padding, bool random)
      : size_(size), padding_(padding), random_(random) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return random_ ? "random-crop" : "centre-crop"; }
  std::string text() const override {
    return fmt::format("{}={}{}", name(), text_of(size_),
                       padding_ > 0 ? fmt::format(":pad={}", padding_) : "");
  }
  ImageExtent extent(const ImageExtent&) const override { return size_; }
  bool resizes() const override { return false; }
  bool pads() const override { return padding_ > 0; }
  void plan(Geometry& geometry, const Draw& draw) const override {
    require_room(geometry, size_, padding_, name());
    if (padding_ > 0 && geometry.out != Window{0, 0, geometry.height, geometry.width})
      geometry.kept = geometry.seen();
    const std::int64_t rows = geometry.out.height + 2 * padding_ - size_.height,
                       columns = geometry.out.width + 2 * padding_ - size_.width;
    if (random_) {
      set_window(geometry, draw.below(0, static_cast<std::uint32_t>(rows + 1)) - padding_,
                 draw.below(1, static_cast<std::uint32_t>(columns + 1)) - padding_, size_);
    } else {
      // Halves are rounded to even, as Python's round() does in torchvision's CenterCrop.
      set_window(geometry, std::lrint(static_cast<double>(rows) / 2) - padding_,
                 std::lrint(static_cast<double>(columns) / 2) - padding_, size_);
    }
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override {
    return {std::make_shared<Crop>(size_, padding_, false)};
  }

 private:
  ImageExtent size_;
  std::int64_t padding_;
  bool random_;
};

class Flip final : public Transform {
 public:
  explicit Flip(double chance) : chance_(chance) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "flip"; }
  std::string text() const override {
    return chance_ == 0.5 ? "flip" : fmt::format("flip={}", chance_);
  }
  bool resizes() const override { return false; }
  void plan(Geometry& geometry, const Draw& draw) const override {
    if (draw.uniform(0) < static_cast<float>(chance_)) geometry.mirrored = !geometry.mirrored;
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double chance_;
};

// The window of the image that a resize starts from: Geometry allows only one change of size,
// without padding before it.
Window source_of(const Geometry& geometry, std::string_view who) {
  const Window& out = geometry.out;
  if (geometry.resizes() || geometry.kept ||
      !is_inside(out, Shape{geometry.height, geometry.width, 1}))
    fail<DataError>("{} must come before crops with padding and other changes of size", who);
  return {geometry.source.y + out.y, geometry.source.x + out.x, out.height, out.width};
}

class Resize final : public Transform {
 public:
  Resize(const ImageExtent& size, bool shorter_side) : size_(size), shorter_side_(shorter_side) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "resize"; }
  std::string text() const override {
    return shorter_side_ ? fmt::format("resize={}", size_.height)
                         : fmt::format("resize={}x{}", size_.height, size_.width);
  }
  // Rounds the longer side down, as torchvision's Resize does.
  ImageExtent extent(const ImageExtent& before) const override {
    if (!shorter_side_) return size_;
    if (before.height < before.width)
      return {size_.height, size_.height * before.width / before.height};
    return {size_.width * before.height / before.width, size_.width};
  }
  void plan(Geometry& geometry, const Draw&) const override {
    geometry.source = source_of(geometry, text());
    const ImageExtent size = extent({geometry.out.height, geometry.out.width});
    geometry.height = size.height;
    geometry.width = size.width;
    geometry.out = {0, 0, size.height, size.width};
  }

 private:
  ImageExtent size_;
  bool shorter_side_;
};

// torchvision's RandomResizedCrop: up to ten draws of an area and a log-uniform aspect ratio, then
// the largest centre crop within the ratios 3/4 and 4/3.
class RandomResizedCrop final : public Transform {
 public:
  RandomResizedCrop(const ImageExtent& size, double least, double most)
      : size_(size), least_(least), most_(most) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "random-resized-crop"; }
  std::string text() const override {
    return fmt::format("random-resized-crop={}:{}:{}", text_of(size_), least_, most_);
  }
  ImageExtent extent(const ImageExtent&) const override { return size_; }
  void plan(Geometry& geometry, const Draw& draw) const override {
    const Window from = source_of(geometry, text());
    const Window crop = choose(from.height, from.width, draw);
    geometry.source = {from.y + crop.y, from.x + crop.x, crop.height, crop.width};
    geometry.height = size_.height;
    geometry.width = size_.width;
    geometry.out = {0, 0, size_.height, size_.width};
  }
  // A shorter side of 256 for crops of 224, the usual ratio.
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override {
    const std::int64_t side = std::max(size_.height, size_.width) * 256 / 224;
    return {std::make_shared<Resize>(ImageExtent{side, side}, true),
            std::make_shared<Crop>(size_, 0, false)};
  }

 private:
  static constexpr double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;
  Window choose(std::int64_t height, std::int64_t width, const Draw& draw) const {
    const double area = static_cast<double>(height) * static_cast<double>(width);
    for (std::uint32_t attempt = 0; attempt < 10; ++attempt) {
      const double target =
          area * (least_ + (most_ - least_) * static_cast<double>(draw.uniform(4 * attempt)));
      const double log_ratio =
          std::log(least_ratio) + (std::log(most_ratio) - std::log(least_ratio)) *
                                      static_cast<double>(draw.uniform(4 * attempt + 1));
      const double ratio = std::exp(log_ratio);
      const std::int64_t w = std::lround(std::sqrt(target * ratio)),
                         h = std::lround(std::sqrt(target / ratio));
      if (w < 1 || h < 1 || w > width || h > height) continue;
      return {draw.below(4 * attempt + 2, static_cast<std::uint32_t>(height - h + 1)),
              draw.below(4 * attempt + 3, static_cast<std::uint32_t>(width - w + 1)), h, w};
    }
    const double ratio = static_cast<double>(width) / static_cast<double>(height);
    std::int64_t h = height, w = width;
    if (ratio < least_ratio) h = std::lround(static_cast<double>(w) / least_ratio);
    if (ratio > most_ratio) w = std::lround(static_cast<double>(h) * most_ratio);
    return {(height - h) / 2, (width - w) / 2, h, w};
  }

  ImageExtent size_;
  double least_, most_;
};

const TransformKind random_crop("random-crop", "random-crop=SIZE[:pad=P]",
                                "a window anywhere in the image, with P pixels of 0 around it",
                                [](const TransformArguments& a) {
                                  a.most(1, {"pad"});
                                  return TransformPtr(std::make_shared<Crop>(
                                      a.extent(0), a.whole("pad", 0, 1024, 0), true));
                                });
const TransformKind centre_crop("centre-crop", "centre-crop=SIZE[:pad=P]",
                                "the window in the centre", [](const TransformArguments& a) {
                                  a.most(1, {"pad"});
                                  return TransformPtr(std::make_shared<Crop>(
                                      a.extent(0), a.whole("pad", 0, 1024, 0), false));
                                });
const TransformKind flip("flip", "flip[=CHANCE]", "mirrored left to right, half the time",
                         [](const TransformArguments& a) {
                           a.most(1, {});
                           return TransformPtr(
                               std::make_shared<Flip>(a.count() == 0 ? 0.5 : a.number(0, 0, 1)));
                         });
const TransformKind resize("resize", "resize=SHORTER_SIDE or resize=HEIGHTxWIDTH",
                           "antialiased bilinear, as Pillow does", [](const TransformArguments& a) {
                             a.most(1, {});
                             return TransformPtr(std::make_shared<Resize>(
                                 a.extent(0),
                                 a.text().find('x', a.text().find('=')) == std::string::npos));
                           });
const TransformKind random_resized_crop(
    "random-resized-crop", "random-resized-crop=SIZE[:LEAST_AREA:MOST_AREA]",
    "a window of 8 to 100 % of the image, resized", [](const TransformArguments& a) {
      a.most(3, {});
      const double least = a.count() > 1 ? a.number(1, 1e-4, 1) : 0.08,
                   most = a.count() > 2 ? a.number(2, least, 1) : 1;
      return TransformPtr(std::make_shared<RandomResizedCrop>(a.extent(0), least, most));
    });

}  // namespace
}  // namespace warpstep::data
