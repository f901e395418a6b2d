// From a sample to its row: decode what the geometry needs, put it in its place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/decode/decode.h"
#include "data/decode/image.h"
#include "data/transforms/transform.h"

namespace warpstep::data {

// Images to another size: antialiased bilinear, pixel for pixel what Pillow's resize gives (to
// version 10; later ones take some images column by column first, which differs by 1 at most).

// Keeps its tables and its buffer from image to image; one a worker.
class Resampler {
 public:
  // Window `out` (inside height x width) of `image` [shape], resized to height x width, into pixels
  // [out.height, out.width, channels]. A triangle filter as wide as a source pixel or, when it
  // shrinks, a result's pixel; weights are rounded to 22 bits, and both passes to bytes.
  void bilinear(std::span<const std::uint8_t> image, const Shape& shape, std::int64_t height,
                std::int64_t width, const Window& out, std::span<std::uint8_t> pixels);

 private:
  struct Taps {
    std::vector<std::int32_t> first, count;  // source pixels of each result
    std::vector<std::int32_t> weights;       // [results, most]
    std::size_t most = 0;
  };
  static void prepare(Taps& taps, std::int64_t from, std::int64_t to, std::int64_t begin,
                      std::int64_t results);

  Taps across_, down_;
  std::vector<std::uint8_t> rows_;
};

// One a worker.
struct Developer {
  Scratch scratch;
  Resampler resampler;
  std::vector<std::uint8_t> part;     // of the image, before it is resized
  std::vector<std::uint8_t> resized;  // before it is put in its place
  std::uint64_t resize_ns = 0;        // a sum, like those of scratch
};

// The row [geometry.out.height, geometry.out.width, channels] of an image of `shape`. Only the
// window that is seen is decoded, straight to its final address where it is neither resized nor
// mirrored nor padded. Throws DataError like decode().
void develop(const Sample& sample, const std::string& name, const Shape& shape,
             const Geometry& geometry, std::int64_t channels, Developer& developer,
             std::span<std::uint8_t> row);

}  // namespace warpstep::data
