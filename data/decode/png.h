// PNG files of every kind to 8-bit pixels, and pixels to PNG files.
#pragma once

#include <cstddef>
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

// libpng's part of png.cpp: plain structures and functions, because libpng leaves by longjmp, which
// must not cross a frame that holds anything with a destructor.

// One image on its way out of or into a file. Holds nothing with a destructor.
struct LibpngImage {
  std::uint8_t* pixels;  // [height, width, channels]
  std::uint32_t height;
  std::uint32_t width;
  std::uint32_t channels;    // of `pixels`, 1 or 3
  const std::uint8_t* file;  // of decoding
  std::size_t bytes;
  std::size_t at;  // how far into the file libpng has read
  bool truncated;
  char reason[160];
};

// Fills image->pixels: palettes looked up, 16 bits cut to the high 8, fewer than 8 widened, alpha
// dropped, gray repeated where channels is 3. False with `reason` when the file is broken. The
// caller has checked the header: a file with colour has channels 3.
bool libpng_decode(LibpngImage* image);

// Appends the 8-bit PNG file of image->pixels. False with `reason` when memory runs out.
bool libpng_encode(LibpngImage* image, std::vector<std::uint8_t>* file);

}  // namespace warpstep::data
