#include "data/develop.h"

#include <algorithm>
#include <cstring>

#include "engine/core/clock.h"
#include "engine/core/record.h"

namespace warpstep::data {
namespace {

const record::Name resize_name{"resize", record::Kind::stage};

Window intersection(const Window& window, std::int64_t height, std::int64_t width) {
  const std::int64_t y = std::clamp<std::int64_t>(window.y, 0, height),
                     x = std::clamp<std::int64_t>(window.x, 0, width);
  return {y, x, std::clamp<std::int64_t>(window.y + window.height, 0, height) - y,
          std::clamp<std::int64_t>(window.x + window.width, 0, width) - x};
}

bool is_empty(const Window& window) {
  return window.height == 0 || window.width == 0;
}

// `seen` of the pixels inside window `out`, both in the image's coordinates, as the row: what lies
// around is 0, and the row is mirrored last.
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
    const Window seen = intersection(out, geometry.height, geometry.width);
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
  const Window seen = intersection(out, geometry.height, geometry.width);
  const bool in_place = seen == out && !geometry.mirrored;
  if (!in_place) developer.resized.resize(size(seen));
  if (!is_empty(seen))
    developer.resampler.bilinear(developer.part, Shape{source.height, source.width, channels},
                                 geometry.height, geometry.width, seen,
                                 in_place ? row : std::span(developer.resized));
  if (!in_place) place(developer.resized, seen, out, geometry.mirrored, idx(channels), row);
  developer.resize_ns += record::note_since(resize_name, begin);
}

}  // namespace warpstep::data
