#include "data/transforms/transform.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(by, at);
    parts.emplace_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && (text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
}

// A static in a function, so that it exists before the TransformKinds of all files.
std::vector<const TransformKind*>& kinds() {
  static std::vector<const TransformKind*> all;
  return all;
}

}  // namespace

Geometry Geometry::whole(const Shape& image) {
  return {.source = {0, 0, image[0], image[1]},
          .height = image[0],
          .width = image[1],
          .out = {0, 0, image[0], image[1]},
          .mirrored = false};
}

Window Geometry::seen() const {
  const Window all{0, 0, height, width};
  return intersection(out, kept ? intersection(*kept, all) : all);
}

std::string_view name(TransformStage stage) {
  switch (stage) {
    case TransformStage::geometry: return "geometry";
    case TransformStage::bytes: return "bytes";
    case TransformStage::jitter: return "jitter";
    case TransformStage::mask: return "mask";
    case TransformStage::colour: return "colour";
    case TransformStage::mix: return "mix";
  }
  return "?";
}

Transform::~Transform() = default;

TransformArguments::TransformArguments(std::string_view text, std::string_view usage)
    : text_(text), usage_(usage) {
  const std::size_t equals = text.find('=');
  name_ = text.substr(0, equals);
  if (equals == std::string_view::npos) return;
  for (const std::string& part : split(text.substr(equals + 1), ':')) {
    if (is_number(part)) {
      values_.push_back(part);
    } else {
      const std::size_t inner = part.find('=');
      words_.emplace_back(part.substr(0, inner),
                          inner == std::string::npos ? "" : part.substr(inner + 1));
    }
  }
}

void TransformArguments::refuse(std::string_view what) const {
  fail<UsageError>("transform {}: {}; usage: {}", text_, what, usage_);
}

double TransformArguments::parse(std::string_view value, double least, double most,
                                 bool whole) const {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number) ||
      (whole && number != std::floor(number)))
    refuse(fmt::format("'{}' is not a {}", value, whole ? "whole number" : "number"));
  if (number < least || number > most)
    refuse(fmt::format("{} is not from {} to {}", value, least, most));
  return number;
}

std::int64_t TransformArguments::whole(std::size_t i, std::int64_t least, std::int64_t most) const {
  if (i >= values_.size()) refuse("a number is missing");
  return static_cast<std::int64_t>(
      parse(values_[i], static_cast<double>(least), static_cast<double>(most), true));
}

double TransformArguments::number(std::size_t i, double least, double most) const {
  if (i >= values_.size()) refuse("a number is missing");
  return parse(values_[i], least, most, false);
}

ImageExtent TransformArguments::extent(std::size_t i) const {
  if (i >= values_.size()) refuse("a size is missing");
  const std::vector<std::string> sides = split(values_[i], 'x');
  if (sides.size() > 2) refuse(fmt::format("'{}' is not a size", values_[i]));
  const auto side = [&](const std::string& text) {
    return static_cast<std::int64_t>(parse(text, 1, 16384, true));
  };
  return {side(sides.front()), side(sides.back())};
}

bool TransformArguments::has(std::string_view word) const {
  return std::any_of(words_.begin(), words_.end(),
                     [&](const auto& entry) { return entry.first == word; });
}

std::int64_t TransformArguments::whole(std::string_view word, std::int64_t least, std::int64_t most,
                                       std::int64_t absent) const {
  for (const auto& [name, value] : words_)
    if (name == word)
      return static_cast<std::int64_t>(
          parse(value, static_cast<double>(least), static_cast<double>(most), true));
  return absent;
}

void TransformArguments::most(std::size_t values,
                              std::initializer_list<std::string_view> words) const {
  if (values_.size() > values) refuse(fmt::format("accepts at most {} numbers", values));
  for (const auto& [word, value] : words_)
    if (std::find(words.begin(), words.end(), word) == words.end())
      refuse(fmt::format("'{}' is not known", word));
}

TransformKind::TransformKind(const char* kind_name, const char* kind_usage, const char* kind_what,
                             Make kind_make)
    : name(kind_name), usage(kind_usage), what(kind_what), make(kind_make) {
  auto& all = kinds();
  const auto before = [](const TransformKind* a, const TransformKind* b) {
    return std::string_view(a->name) < b->name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), this, before), this);
}

const std::vector<const TransformKind*>& TransformKind::all() {
  return kinds();
}

namespace {

// The built-in transforms of the geometry: crops, flips and sizes.

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

// The built-in transforms of pixel values: jitter, mask, colours and mixing. They change no bytes
// here, but the affine map and the row plans of engine/core/pixels.h.

// Brightness scales bytes, contrast scales their distance from the middle, 127.5, both by a factor
// uniform in [1 - amount, 1 + amount]. Results are not clamped to 0 and 255.
class Jitter final : public Transform {
 public:
  Jitter(bool contrast, double amount) : contrast_(contrast), amount_(static_cast<float>(amount)) {}
  TransformStage stage() const override { return TransformStage::jitter; }
  std::string name() const override { return contrast_ ? "contrast" : "brightness"; }
  std::string text() const override { return fmt::format("{}={}", name(), amount_); }
  void row(RowPlan& plan, const Draw& draw) const override {
    const float factor = 1 + amount_ * (2 * draw.uniform(0) - 1);
    plan.gain *= factor;
    plan.offset = plan.offset * factor + (contrast_ ? 127.5F * (1 - factor) : 0);
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  bool contrast_;
  float amount_;
};

class RandomMask final : public Transform {
 public:
  RandomMask(double chance, bool dilate) : chance_(chance), dilate_(dilate) {}
  TransformStage stage() const override { return TransformStage::mask; }
  std::string name() const override { return "random-mask"; }
  std::string text() const override {
    return fmt::format("random-mask={}{}", chance_, dilate_ ? ":dilate" : "");
  }
  void row(RowPlan& plan, const Draw& draw) const override {
    plan.key[0] = static_cast<std::uint32_t>(draw.seed());
    plan.key[1] = static_cast<std::uint32_t>(draw.seed() >> 32);
    plan.counter[0] = draw.epoch();
    plan.counter[1] = static_cast<std::uint32_t>(draw.sample());
  }
  void pixels(PixelPlan& plan) const override {
    plan.mask_threshold = static_cast<std::uint32_t>(std::lround(chance_ * 65536));
    plan.dilate = dilate_;
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double chance_;
  bool dilate_;
};

// JPEG's full-range Y'CbCr of bytes (ITU-T T.871, section 7), with chroma centred at 128.
class Yuv final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "yuv"; }
  std::string text() const override { return "yuv"; }
  void pixels(PixelPlan& plan) const override {
    if (plan.channels != 3)
      fail<UsageError>("transform yuv needs 3 channels, but the images have {}", plan.channels);
    constexpr double matrix[3][3] = {
        {0.299, 0.587, 0.114}, {-0.168736, -0.331264, 0.5}, {0.5, -0.418688, -0.081312}};
    const PixelPlan before = plan;
    for (std::size_t o = 0; o < 3; ++o) {
      double shift = o == 0 ? 0 : 128;
      for (std::size_t c = 0; c < 3; ++c) {
        double factor = 0;
        for (std::size_t k = 0; k < 3; ++k) factor += matrix[o][k] * before.m[k][c];
        plan.m[o][c] = static_cast<float>(factor);
        shift += matrix[o][c] * before.shift[c];
      }
      plan.shift[o] = static_cast<float>(shift);
    }
  }
};

class Scale final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "scale"; }
  std::string text() const override { return "scale"; }
  void pixels(PixelPlan& plan) const override {
    for (auto& row : plan.m)
      for (float& factor : row) factor = static_cast<float>(factor / 255.0);
    for (float& shift : plan.shift) shift = static_cast<float>(shift / 255.0);
  }
};

// The recipe folds it in with the data set's mean and std (Recipe::pixels).
class Normalize final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "normalize"; }
  std::string text() const override { return "normalize"; }
};

// From Beta(alpha, alpha); after 32 rejections a half. Takes fields 0 to 63. Joehnk's method
// accepts at least half of its attempts up to alpha 1, but one in 70 at alpha 4; Cheng's BB
// (Communications of the ACM 21, 1978) accepts nine tenths or more above 1.
double beta(double alpha, const Draw& draw) {
  const double log_scale = 1 / std::sqrt(alpha), slope = alpha + std::sqrt(alpha);  // of BB
  for (std::uint32_t attempt = 0; attempt < 32; ++attempt) {
    const auto u = static_cast<double>(draw.uniform(2 * attempt)),
               v = static_cast<double>(draw.uniform(2 * attempt + 1));
    if (alpha <= 1) {
      const double a = std::pow(u, 1 / alpha), b = std::pow(v, 1 / alpha);
      if (a + b <= 1 && a + b > 0) return a / (a + b);
      continue;
    }
    if (u == 0) continue;
    const double log_odds = log_scale * std::log(u / (1 - u));
    const double w = alpha * std::exp(log_odds);
    const double log_density =
        slope * log_odds - std::log(4.0) + 2 * alpha * std::log(2 * alpha / (alpha + w));
    if (log_density >= std::log(u * u * v)) return w / (alpha + w);
  }
  return 0.5;
}

// Where mixup and cutmix are both in a recipe, the second one takes over half of the rows.
bool leaves_to_other(const RowPlan& plan, const Draw& draw) {
  return plan.weight < 1 && draw.below(66, 2) == 0;
}

// Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018: mixes each row with its
// neighbour, with a weight of its own from Beta(alpha, alpha).
class Mixup final : public Transform {
 public:
  explicit Mixup(double alpha) : alpha_(alpha) {}
  TransformStage stage() const override { return TransformStage::mix; }
  std::string name() const override { return "mixup"; }
  std::string text() const override { return fmt::format("mixup={}", alpha_); }
  void mix(RowPlan& plan, const Draw& draw, const ImageExtent&) const override {
    if (leaves_to_other(plan, draw)) return;
    plan.weight = static_cast<float>(beta(alpha_, draw));
    plan.top = plan.left = plan.bottom = plan.right = 0;
  }
  void pixels(PixelPlan& plan) const override { plan.mix = true; }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double alpha_;
};

// Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
// Features", ICCV 2019, as torchvision's: a box around a random pixel, of the share 1 - w of the
// area, w from Beta(alpha, alpha), is the neighbour's; cut off at the row's edge, the weight is
// what is left of the row.
class Cutmix final : public Transform {
 public:
  explicit Cutmix(double alpha) : alpha_(alpha) {}
  TransformStage stage() const override { return TransformStage::mix; }
  std::string name() const override { return "cutmix"; }
  std::string text() const override { return fmt::format("cutmix={}", alpha_); }
  void mix(RowPlan& plan, const Draw& draw, const ImageExtent& row) const override {
    if (leaves_to_other(plan, draw)) return;
    const double half = 0.5 * std::sqrt(1 - beta(alpha_, draw));
    const auto part = [&](std::uint32_t field, std::int64_t side) {
      const std::int64_t middle = draw.below(field, static_cast<std::uint32_t>(side)),
                         reach = static_cast<std::int64_t>(half * static_cast<double>(side));
      return std::pair(static_cast<std::int16_t>(std::max<std::int64_t>(middle - reach, 0)),
                       static_cast<std::int16_t>(std::min(middle + reach, side)));
    };
    std::tie(plan.top, plan.bottom) = part(64, row.height);
    std::tie(plan.left, plan.right) = part(65, row.width);
    const double box = static_cast<double>(plan.bottom - plan.top) * (plan.right - plan.left);
    plan.weight = static_cast<float>(1 - box / static_cast<double>(row.height * row.width));
  }
  void pixels(PixelPlan& plan) const override { plan.mix = true; }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double alpha_;
};

template <class T>
TransformPtr make_plain(const TransformArguments& a) {
  a.most(0, {});
  return std::make_shared<T>();
}

template <bool contrast>
TransformPtr make_jitter(const TransformArguments& a) {
  a.most(1, {});
  return std::make_shared<Jitter>(contrast, a.number(0, 0, 1));
}

const TransformKind brightness("brightness", "brightness=AMOUNT",
                               "bytes times 1 - AMOUNT to 1 + AMOUNT", make_jitter<false>);
const TransformKind contrast("contrast", "contrast=AMOUNT",
                             "distances from mid-gray times 1 - AMOUNT to 1 + AMOUNT",
                             make_jitter<true>);
const TransformKind random_mask("random-mask", "random-mask=CHANCE[:dilate]",
                                "pixels set to 0, with their 4 neighbours",
                                [](const TransformArguments& a) {
                                  a.most(1, {"dilate"});
                                  return TransformPtr(std::make_shared<RandomMask>(
                                      a.number(0, 0, 1), a.has("dilate")));
                                });
const TransformKind yuv("yuv", "yuv", "RGB to full-range YCbCr", make_plain<Yuv>);
const TransformKind scale("scale", "scale", "bytes to [0, 1]", make_plain<Scale>);
const TransformKind normalize("normalize", "normalize", "(x / 255 - mean) / std per channel",
                              make_plain<Normalize>);
const TransformKind mixup("mixup", "mixup=ALPHA",
                          "each row mixed with its neighbour, weights from Beta(ALPHA, ALPHA)",
                          [](const TransformArguments& a) {
                            a.most(1, {});
                            return TransformPtr(std::make_shared<Mixup>(a.number(0, 0.01, 4)));
                          });
const TransformKind cutmix("cutmix", "cutmix=ALPHA",
                           "a box of each row is its neighbour's; beside mixup each by halves",
                           [](const TransformArguments& a) {
                             a.most(1, {});
                             return TransformPtr(std::make_shared<Cutmix>(a.number(0, 0.01, 4)));
                           });

}  // namespace
}  // namespace warpstep::data
