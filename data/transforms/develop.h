// From a sample to its row: decodes the window that the geometry needs, resizes, mirrors and pads
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/decode/decode.h"
#include "data/decode/image.h"
#include "data/transforms/transform.h"

namespace warpstep::data {

// Antialiased bilinear resizing with the same pixels as Pillow's resize (up to version 10; later
// ones process some images by column first, which differs by 1 at most). Reuses its tables and
// buffer from image to image; one per worker.
class Resampler {
 public:
  // Window `out` (inside height x width) of `image` [shape], resized to height x width, into pixels
  // [out.height, out.width, channels]. The triangle filter is as wide as a source pixel, or as a
  // result pixel when shrinking; weights are rounded to 22 bits, and the results of both passes to
  // bytes.
  void bilinear(std::span<const std::uint8_t> image, const Shape& shape, std::int64_t height,
                std::int64_t width, const Window& out, std::span<std::uint8_t> pixels);

 private:
  struct Taps {
    std::vector<std::int32_t> first, count;  // source pixels of each result pixel
    std::vector<std::int32_t> weights;       // [results, most]
    std::size_t most = 0;
  };
  static void prepare(Taps& taps, std::int64_t from, std::int64_t to, std::int64_t begin,
                      std::int64_t results);

  Taps across_, down_;
  std::vector<std::uint8_t> rows_;
};

// The decoders and buffers of one worker.
struct Developer {
  Scratch scratch;
  Resampler resampler;
  std::vector<std::uint8_t> part;     // the decoded window, before it is resized
  std::vector<std::uint8_t> resized;  // the resized window, before place()
  std::uint64_t resize_ns = 0;        // a sum, like the times in scratch
};

// Makes the row [geometry.out.height, geometry.out.width, channels] of an image of `shape`. Decodes
// only the visible window, directly to its final address unless it is resized, mirrored or padded.
// Throws DataError like decode().
void develop(const Sample& sample, const std::string& name, const Shape& shape,
             const Geometry& geometry, std::int64_t channels, Developer& developer,
             std::span<std::uint8_t> row);

}  // namespace warpstep::data
