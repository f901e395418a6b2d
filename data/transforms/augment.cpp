#include "data/transforms/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

using Bytes = std::array<std::uint8_t, 256>;
using Floats = std::array<float, 256>;

// Cut off, not rounded.
std::uint8_t to_byte(float value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

template <class Function>
Bytes bytes_by(const Function& of) {
  Bytes table{};
  for (std::size_t v = 0; v < table.size(); ++v) table[v] = of(static_cast<float>(v));
  return table;
}

Floats multiples(double factor) {
  Floats table{};
  for (std::size_t v = 0; v < table.size(); ++v)
    table[v] = static_cast<float>(v) * static_cast<float>(factor);
  return table;
}

void look_up(const Bytes& table, const RowImage& image) {
  for (std::uint8_t& byte : image.pixels) byte = table[byte];
}

// torchvision's weights of red, green and blue; cut off to a byte.
std::uint8_t gray(const std::uint8_t* pixel) {
  static const Floats red = multiples(0.2989), green = multiples(0.587), blue = multiples(0.114);
  return to_byte(red[pixel[0]] + green[pixel[1]] + blue[pixel[2]]);
}

// own + other * share, rounded once to f32, as PyTorch adds: the product is exact in double, and so
// is the sum as far as a byte needs.
float added(float own, float other, double share) {
  return static_cast<float>(static_cast<double>(own) +
                            static_cast<double>(other) *
                                static_cast<double>(static_cast<float>(share)));
}

// Blends: factor times the image, 1 - factor times something else.

void brighten(double factor, const RowImage& image) {
  const auto by = static_cast<float>(factor);
  look_up(bytes_by([by](float v) { return to_byte(v * by); }), image);
}

void saturate(double factor, const RowImage& image) {
  if (image.channels != 3) return;
  const Floats own = multiples(factor);
  std::uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (std::uint8_t* pixel = image.pixels.data(); pixel < end; pixel += 3) {
    const auto base = static_cast<float>(gray(pixel));
    for (int c = 0; c < 3; ++c) pixel[c] = to_byte(added(own[pixel[c]], base, 1 - factor));
  }
}

void change_contrast(double factor, const RowImage& image) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += idx(image.channels))
    sum += image.channels == 3 ? gray(&image.pixels[i]) : image.pixels[i];
  const double pixels = static_cast<double>(image.height * image.width);
  const auto mean = static_cast<float>(static_cast<double>(sum) / pixels);
  const Floats own = multiples(factor);
  Bytes table{};
  for (std::size_t v = 0; v < table.size(); ++v)
    table[v] = to_byte(added(own[v], mean, 1 - factor));
  look_up(table, image);
}

// The bytes before an operation that reads neighbours. One per thread, so that it keeps its memory.
std::span<const std::uint8_t> copy_of(const RowImage& image) {
  thread_local std::vector<std::uint8_t> bytes;
  bytes.assign(image.pixels.begin(), image.pixels.end());
  return bytes;
}

// Blended with the mean of 3 x 3 pixels, the middle one five times, rounded: 13 has no halves. The
// image's edge stays.
void sharpen(double factor, const RowImage& image) {
  if (image.height <= 2 || image.width <= 2) return;
  const std::span<const std::uint8_t> from = copy_of(image);
  const std::ptrdiff_t across = image.channels, down = image.width * image.channels;
  for (std::int64_t y = 1; y + 1 < image.height; ++y)
    for (std::int64_t i = y * down + across; i < (y + 1) * down - across; ++i) {
      const std::uint8_t* at = from.data() + i;
      int sum = 5 * at[0];
      for (const std::ptrdiff_t line : {-down, std::ptrdiff_t{0}, down})
        sum += at[line - across] + at[line + across] + (line != 0 ? at[line] : 0);
      const int difference = (2 * sum + 13) / 26 - at[0];
      image.pixels[idx(i)] =
          to_byte(added(static_cast<float>(at[0]), static_cast<float>(difference), 1 - factor));
    }
}

// Nearest neighbours: the output pixel whose centre is (x, y) from the image's centre is the one at
// (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]) there; outside are zeros.
void warp(const std::array<double, 6>& m, const RowImage& image) {
  const std::span<const std::uint8_t> from = copy_of(image);
  const double half_width = static_cast<double>(image.width) / 2,
               half_height = static_cast<double>(image.height) / 2;
  const std::size_t channels = idx(image.channels);
  std::uint8_t* to = image.pixels.data();
  for (std::int64_t i = 0; i < image.height; ++i)
    for (std::int64_t j = 0; j < image.width; ++j, to += channels) {
      const double y = static_cast<double>(i) + 0.5 - half_height,
                   x = static_cast<double>(j) + 0.5 - half_width;
      const double column = std::nearbyint(m[0] * x + m[1] * y + m[2] + half_width - 0.5),
                   line = std::nearbyint(m[3] * x + m[4] * y + m[5] + half_height - 0.5);
      if (column < 0 || line < 0 || column >= static_cast<double>(image.width) ||
          line >= static_cast<double>(image.height)) {
        std::memset(to, 0, channels);
        continue;
      }
      const auto at =
          static_cast<std::int64_t>(line) * image.width + static_cast<std::int64_t>(column);
      std::memcpy(to, from.data() + idx(at) * channels, channels);
    }
}

// Each channel through a table of its own, made of its histogram.
template <class Make>
void by_histogram(const RowImage& image, const Make& make) {
  const std::size_t channels = idx(image.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    std::array<std::int64_t, 256> counts{};
    for (std::size_t i = c; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
    const Bytes table = make(counts);
    for (std::size_t i = c; i < image.pixels.size(); i += channels)
      image.pixels[i] = table[image.pixels[i]];
  }
}

Bytes stretched(const std::array<std::int64_t, 256>& counts) {
  const auto used = [](std::int64_t count) { return count > 0; };
  const auto least = std::find_if(counts.begin(), counts.end(), used) - counts.begin();
  const auto most = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), used) - 1;
  if (least == most) return bytes_by([](float v) { return to_byte(v); });
  const float range = static_cast<float>(most - least) * static_cast<float>(1 / 255.0);
  return bytes_by([&](float v) { return to_byte((v - static_cast<float>(least)) / range); });
}

Bytes equalized(const std::array<std::int64_t, 256>& counts) {
  std::int64_t sum = 0, last = 0;
  for (const std::int64_t count : counts) {
    sum += count;
    if (count > 0) last = count;
  }
  const std::int64_t step = (sum - last) / 255;
  Bytes table{};
  std::int64_t below = 0;
  for (std::size_t v = 0; v < table.size(); below += counts[v++])
    table[v] = static_cast<std::uint8_t>(step == 0 ? v
                                         : v == 0  ? 0
                                                  : static_cast<std::size_t>(std::min<std::int64_t>(
                                                        (below + step / 2) / step, 255)));
  return table;
}

struct Hsv {
  float h, s, v;  // each in [0, 1]
};

Hsv hsv_of(float r, float g, float b) {
  const float most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, most};
  const float range = most - least;
  const float red = (most - r) / range, green = (most - g) / range, blue = (most - b) / range;
  const float sixths = most == r ? blue - green : most == g ? 2 + red - blue : 4 + green - red;
  return {std::fmod(sixths * (1.0F / 6) + 1, 1.0F), range / most, most};
}

std::array<float, 3> rgb_of(const Hsv& colour) {
  const float sixths = colour.h * 6, whole = std::floor(sixths), part = sixths - whole;
  const float v = colour.v, rest = 1 - colour.s, moved = colour.s * part;
  const float p = rest * v, q = (1 - moved) * v, t = (moved + rest) * v;
  switch (static_cast<int>(whole) % 6) {
    case 0: return {v, t, p};
    case 1: return {q, v, p};
    case 2: return {p, v, t};
    case 3: return {p, q, v};
    case 4: return {t, p, v};
    default: return {v, p, q};
  }
}

constexpr double radians = std::numbers::pi / 180;

}  // namespace

std::string_view name(Operation operation) {
  constexpr std::array<std::string_view, operations> names{
      "identity",  "shear_x",    "shear_y",       "translate_x", "translate_y",
      "rotate",    "brightness", "saturation",    "contrast",    "sharpness",
      "posterize", "solarize",   "auto_contrast", "equalize"};
  return names.at(static_cast<std::size_t>(operation));
}

void operate(Operation operation, double magnitude, const RowImage& image) {
  const double half_height = static_cast<double>(image.height) / 2,
               half_width = static_cast<double>(image.width) / 2;
  switch (operation) {
    case Operation::identity: return;
    // Around the upper left corner.
    case Operation::shear_x: return warp({1, magnitude, magnitude * half_height, 0, 1, 0}, image);
    case Operation::shear_y: return warp({1, 0, 0, magnitude, 1, magnitude * half_width}, image);
    case Operation::translate_x: return warp({1, 0, -magnitude, 0, 1, 0}, image);
    case Operation::translate_y: return warp({1, 0, 0, 0, 1, -magnitude}, image);
    case Operation::rotate: {
      const double c = std::cos(magnitude * radians), s = std::sin(magnitude * radians);
      return warp({c, -s, 0, s, c, 0}, image);
    }
    case Operation::brightness: return brighten(1 + magnitude, image);
    case Operation::saturation: return saturate(1 + magnitude, image);
    case Operation::contrast: return change_contrast(1 + magnitude, image);
    case Operation::sharpness: return sharpen(1 + magnitude, image);
    case Operation::posterize: {
      const int dropped = 8 - static_cast<int>(magnitude);
      for (std::uint8_t& byte : image.pixels)
        byte = static_cast<std::uint8_t>(byte >> dropped << dropped);
      return;
    }
    case Operation::solarize:
      for (std::uint8_t& byte : image.pixels)
        if (byte >= magnitude) byte = static_cast<std::uint8_t>(255 - byte);
      return;
    case Operation::auto_contrast: return by_histogram(image, stretched);
    case Operation::equalize: return by_histogram(image, equalized);
  }
}

void shift_hue(double share, const RowImage& image) {
  if (image.channels != 3) return;
  static const Floats shares = [] {
    Floats table{};
    for (std::size_t v = 0; v < table.size(); ++v) table[v] = static_cast<float>(v) / 255;
    return table;
  }();
  std::uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (std::uint8_t* pixel = image.pixels.data(); pixel < end; pixel += 3) {
    Hsv colour = hsv_of(shares[pixel[0]], shares[pixel[1]], shares[pixel[2]]);
    colour.h += static_cast<float>(share);
    colour.h -= std::floor(colour.h);
    const std::array<float, 3> rgb = rgb_of(colour);
    for (std::size_t c = 0; c < 3; ++c)
      pixel[c] = to_byte(std::clamp(rgb[c], 0.0F, 1.0F) * 255.999F);
  }
}

bool has_sign(Operation operation) {
  return operation >= Operation::shear_x && operation <= Operation::sharpness;
}

double rand_augment_magnitude(Operation operation, int bin, const ImageExtent& row) {
  const double share = bin / 30.0;
  const auto shift = [&](std::int64_t side) {  // 150 of 331 pixels, ImageNet's in AutoAugment
    return std::trunc(150.0 / 331 * static_cast<double>(side) * share);
  };
  switch (operation) {
    case Operation::shear_x:
    case Operation::shear_y: return 0.3 * share;
    case Operation::translate_x: return shift(row.width);
    case Operation::translate_y: return shift(row.height);
    case Operation::rotate: return 30 * share;
    case Operation::brightness:
    case Operation::saturation:
    case Operation::contrast:
    case Operation::sharpness: return 0.9 * share;
    case Operation::posterize: return 8 - std::nearbyint(4 * share);
    case Operation::solarize: return 8.5 * (30 - bin);  // 255 * (1 - share) without rounding
    default: return 0;
  }
}

// The transforms.

namespace {

// Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space",
// 2020: some operations, drawn with replacement, all of one magnitude.
class RandAugment final : public Transform {
 public:
  RandAugment(int count, int bin) : count_(count), bin_(bin) {}
  TransformStage stage() const override { return TransformStage::bytes; }
  std::string name() const override { return "randaugment"; }
  std::string text() const override { return fmt::format("randaugment={}:{}", count_, bin_); }
  void apply(const RowImage& image, const Draw& draw) const override {
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count_); ++i) {
      const auto operation = static_cast<Operation>(draw.below(2 * i, operations));
      const double magnitude = rand_augment_magnitude(operation, bin_, {image.height, image.width});
      const bool negative = has_sign(operation) && draw.below(2 * i + 1, 2) == 0;
      operate(operation, negative ? -magnitude : magnitude, image);
    }
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  int count_, bin_;
};

// torchvision's ColorJitter: brightness, contrast and saturation by a factor uniform in [1 - A, 1 +
// A], but not below 0, and the hue by a share in [-A, A], in a random order.
class ColourJitter final : public Transform {
 public:
  explicit ColourJitter(const std::array<double, 4>& amounts) : amounts_(amounts) {}
  TransformStage stage() const override { return TransformStage::bytes; }
  std::string name() const override { return "colour-jitter"; }
  std::string text() const override {
    return fmt::format("colour-jitter={}:{}:{}:{}", amounts_[0], amounts_[1], amounts_[2],
                       amounts_[3]);
  }
  void apply(const RowImage& image, const Draw& draw) const override {
    std::array<std::uint32_t, 4> order{0, 1, 2, 3};
    for (std::uint32_t i = 3; i > 0; --i) std::swap(order[i], order[draw.below(i, i + 1)]);
    for (const std::uint32_t which : order) {
      const double amount = amounts_[which], u = static_cast<double>(draw.uniform(4 + which));
      if (amount == 0) continue;
      if (which == 3) {
        shift_hue(amount * (2 * u - 1), image);
        continue;
      }
      constexpr std::array by{Operation::brightness, Operation::contrast, Operation::saturation};
      const double least = std::max(-1.0, -amount);
      operate(by.at(which), least + u * (amount - least), image);
    }
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  std::array<double, 4> amounts_;  // of brightness, contrast, saturation, hue
};

const TransformKind rand_augment("randaugment", "randaugment[=OPERATIONS:MAGNITUDE]",
                                 "2 of 14 operations, at magnitude 9 of 30",
                                 [](const TransformArguments& a) {
                                   a.most(2, {});
                                   const auto count = a.count() > 0 ? a.whole(0, 1, 14) : 2,
                                              bin = a.count() > 1 ? a.whole(1, 0, 30) : 9;
                                   return TransformPtr(std::make_shared<RandAugment>(
                                       static_cast<int>(count), static_cast<int>(bin)));
                                 });
const TransformKind colour_jitter("colour-jitter",
                                  "colour-jitter=BRIGHTNESS[:CONTRAST[:SATURATION[:HUE]]]",
                                  "factors of 1 - A to 1 + A, hue by -A to A of the circle",
                                  [](const TransformArguments& a) {
                                    a.most(4, {});
                                    std::array<double, 4> amounts{a.number(0, 0, 10), 0, 0, 0};
                                    for (std::size_t i = 1; i < std::min<std::size_t>(a.count(), 4);
                                         ++i)
                                      amounts.at(i) = a.number(i, 0, i == 3 ? 0.5 : 10);
                                    return TransformPtr(std::make_shared<ColourJitter>(amounts));
                                  });

}  // namespace
}  // namespace warpstep::data
