// PNG files to pixels and back. Only what a training set should hold: 8-bit gray or RGB.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::data {

// Shape [height, width, channels] that the header promises. Throws DataError, naming `path` and
// the fix, for anything but an 8-bit gray or RGB PNG, and for a size that the file cannot hold.
Shape png_shape(std::span<const std::uint8_t> file, const std::string& path);

// Decodes into pixels [height, width, channels], which must be `expected`. Throws DataError naming
// `path` for all that png_shape() refuses, another shape, a wrong checksum, missing data.
void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels);

// The PNG file of an image of 1 or 3 channels; the same bytes for the same libpng and zlib.
std::vector<std::uint8_t> encode_png(const Shape& shape, std::span<const std::uint8_t> pixels);

}  // namespace warpstep::data
