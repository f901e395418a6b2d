#include "data/transforms/develop.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/clock.h"
#include "engine/core/record.h"

namespace warpstep::data {
namespace {

constexpr int weight_bits = 22;  // leaves 8 bits for the pixel and 2 of headroom
constexpr std::int32_t half = 1 << (weight_bits - 1);

std::uint8_t rounded_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> weight_bits, 0, 255));
}

const record::Name resize_name{"resize", record::Kind::stage};

bool is_empty(const Window& window) {
  return window.height == 0 || window.width == 0;
}

// Copies `pixels`, which are window `seen`, into the row, which is window `out`, both in the
// image's coordinates. The rest of the row is 0; mirroring comes last.
void place(std::span<const std::uint8_t> pixels, const Window& seen, const Window& out,
           bool mirrored, std::size_t channels, std::span<std::uint8_t> row) {
  const std::size_t row_bytes = idx(out.width) * channels, bytes = idx(seen.width) * channels;
  if (seen != out) std::fill(row.begin(), row.end(), std::uint8_t{0});
  if (is_empty(seen)) return;
  std::uint8_t* to = row.data() + idx(seen.y - out.y) * row_bytes;
  const std::uint8_t* from = pixels.data();
  for (std::int64_t y = 0; y < seen.height; ++y, from += bytes, to += row_bytes) {
    if (!mirrored) {
      std::memcpy(to + idx(seen.x - out.x) * channels, from, bytes);
      continue;
    }
    std::uint8_t* end = to + row_bytes - idx(seen.x - out.x) * channels;
    for (std::size_t x = 0; x < idx(seen.width); ++x) {
      end -= channels;
      for (std::size_t c = 0; c < channels; ++c) end[c] = from[x * channels + c];
    }
  }
}

}  // namespace

void develop(const Sample& sample, const std::string& name, const Shape& shape,
             const Geometry& geometry, std::int64_t channels, Developer& developer,
             std::span<std::uint8_t> row) {
  const Window &source = geometry.source, &out = geometry.out;
  const auto size = [&](const Window& window) {
    return idx(window.height * window.width * channels);
  };
  if (!geometry.resizes()) {
    const Window seen = geometry.seen();
    const Window decoded{source.y + seen.y, source.x + seen.x, seen.height, seen.width};
    if (seen == out && !geometry.mirrored)
      return decode(sample, name, shape, decoded, channels, developer.scratch, row);
    if (!is_empty(seen)) {
      developer.part.resize(size(seen));
      decode(sample, name, shape, decoded, channels, developer.scratch, developer.part);
    }
    return place(developer.part, seen, out, geometry.mirrored, idx(channels), row);
  }
  developer.part.resize(size(source));
  decode(sample, name, shape, source, channels, developer.scratch, developer.part);
  const std::uint64_t begin = now_ns();
  const Window seen = geometry.seen();
  const bool in_place = seen == out && !geometry.mirrored;
  if (!in_place) developer.resized.resize(size(seen));
  if (!is_empty(seen))
    developer.resampler.bilinear(developer.part, Shape{source.height, source.width, channels},
                                 geometry.height, geometry.width, seen,
                                 in_place ? row : std::span(developer.resized));
  if (!in_place) place(developer.resized, seen, out, geometry.mirrored, idx(channels), row);
  developer.resize_ns += record::note_since(resize_name, begin);
}

void Resampler::prepare(Taps& taps, std::int64_t from, std::int64_t to, std::int64_t begin,
                        std::int64_t results) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(scale, 1.0);  // of the triangle, in source pixels
  taps.most = 2 * static_cast<std::size_t>(std::ceil(radius)) + 1;
  taps.first.resize(idx(results));
  taps.count.resize(idx(results));
  taps.weights.assign(idx(results) * taps.most, 0);
  std::vector<double> weights(taps.most);
  for (std::size_t i = 0; i < idx(results); ++i) {
    const double centre = (static_cast<double>(begin) + static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - radius + 0.5), 0);
    const auto end = std::min<std::int64_t>(static_cast<std::int64_t>(centre + radius + 0.5), from);
    taps.first[i] = static_cast<std::int32_t>(first);
    taps.count[i] = static_cast<std::int32_t>(end - first);
    double sum = 0;
    for (std::size_t k = 0; k < idx(end - first); ++k) {
      const double distance =
          std::abs(static_cast<double>(first) + static_cast<double>(k) - centre + 0.5);
      weights[k] = std::max(0.0, 1 - distance / radius);
      sum += weights[k];
    }
    for (std::size_t k = 0; k < idx(end - first); ++k)
      taps.weights[i * taps.most + k] =
          static_cast<std::int32_t>(0.5 + weights[k] / sum * (1 << weight_bits));
  }
}

void Resampler::bilinear(std::span<const std::uint8_t> image, const Shape& shape,
                         std::int64_t height, std::int64_t width, const Window& out,
                         std::span<std::uint8_t> pixels) {
  prepare(across_, shape[1], width, out.x, out.width);
  prepare(down_, shape[0], height, out.y, out.height);
  const std::size_t channels = idx(shape[2]), row_bytes = idx(shape[1]) * channels,
                    out_bytes = idx(out.width) * channels;
  // First pass, across: only the source rows that the window needs.
  const std::size_t top = idx(down_.first.front()),
                    bottom = idx(down_.first.back() + down_.count.back());
  rows_.resize((bottom - top) * out_bytes);
  for (std::size_t y = top; y < bottom; ++y) {
    const std::uint8_t* row = image.data() + y * row_bytes;
    std::uint8_t* to = rows_.data() + (y - top) * out_bytes;
    for (std::size_t x = 0; x < idx(out.width); ++x) {
      const std::uint8_t* from = row + idx(across_.first[x]) * channels;
      const std::int32_t* weights = across_.weights.data() + x * across_.most;
      for (std::size_t c = 0; c < channels; ++c) {
        std::int32_t sum = half;
        for (std::size_t k = 0; k < idx(across_.count[x]); ++k)
          sum += from[k * channels + c] * weights[k];
        to[x * channels + c] = rounded_byte(sum);
      }
    }
  }
  // Second pass, down.
  std::vector<std::int32_t> sums(out_bytes);
  for (std::size_t y = 0; y < idx(out.height); ++y) {
    std::fill(sums.begin(), sums.end(), half);
    for (std::size_t k = 0; k < idx(down_.count[y]); ++k) {
      const std::int32_t weight = down_.weights[y * down_.most + k];
      const std::uint8_t* from = rows_.data() + (idx(down_.first[y]) - top + k) * out_bytes;
      for (std::size_t i = 0; i < out_bytes; ++i) sums[i] += from[i] * weight;
    }
    for (std::size_t i = 0; i < out_bytes; ++i) pixels[y * out_bytes + i] = rounded_byte(sums[i]);
  }
}

}  // namespace warpstep::data
