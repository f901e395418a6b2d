// PNG files of every kind to 8-bit pixels and back, with libpng. png_fast.h is the fast path for
// the common kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/decode/image.h"
#include "engine/core/types.h"

namespace warpstep::data {

// Shape [height, width, channels] by the header: channels 3 for a file with colour or a palette,
// else 1. Throws DataError, naming `path` and the fix, for a file that is not a PNG, for an invalid
// header, and for a size that the file cannot hold.
Shape png_shape(std::span<const std::uint8_t> file, const std::string& path);

// Decodes into pixels [height, width, channels] of `expected`, which has the file's height and
// width and 1 or 3 channels. Palettes are looked up (an index beyond the palette is black), 16 bits
// are reduced to the high 8 (gray too), 1, 2 and 4 bits are scaled to 0..255, alpha and tRNS are
// treated as `alpha` says, and gray is repeated into 3 channels. Throws DataError naming `path` for
// all that png_shape() refuses, another size, colour with 1 channel expected, a wrong checksum of
// any chunk, missing data, and a transparent pixel with Alpha::refuse.
void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels, Alpha alpha = Alpha::drop);

// Whether a PNG file has an alpha channel or a transparent colour, by its header and the chunks
// before the image; false for other files.
bool has_alpha(std::span<const std::uint8_t> file);

// Encodes an image of 1 or 3 channels; the same libpng and zlib give the same bytes.
std::vector<std::uint8_t> encode_png(const Shape& shape, std::span<const std::uint8_t> pixels);

}  // namespace warpstep::data
