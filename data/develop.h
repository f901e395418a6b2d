// From a sample to its row: decode what the geometry needs, put it in its place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/decode.h"
#include "data/resample.h"
#include "data/transform.h"

namespace warpstep::data {

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
