// PNG files of every kind to 8-bit pixels, and pixels to PNG files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::data {

// Shape [height, width, channels] by the header: channels 3 for a file with colour or a palette,
// else 1. Throws DataError, naming `path` and the fix, for what is no PNG, for a header that breaks
// the format, and for a size that the file cannot hold.
Shape png_shape(std::span<const std::uint8_t> file, const std::string& path);

// Decodes into pixels [height, width, channels] of `expected`: the file's height and width, and the
// 1 or 3 channels that are wanted. Palettes are looked up (an index beyond the palette is black),
// 16 bits are cut to the high 8 (gray ones too), 1, 2 and 4 bits are scaled to 0..255, alpha and
// tRNS are dropped without blending, and gray is repeated into 3 channels. Throws DataError naming
// `path` for all that png_shape() refuses, another size, colour where 1 channel is wanted, a wrong
// checksum of any chunk, missing data.
void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels);

// The PNG file of an image of 1 or 3 channels; the same bytes for the same libpng and zlib.
std::vector<std::uint8_t> encode_png(const Shape& shape, std::span<const std::uint8_t> pixels);

}  // namespace warpstep::data
