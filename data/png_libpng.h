// libpng's part of png.cpp: plain structures and functions, because libpng leaves by longjmp, which
// must not cross a frame that holds anything with a destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpstep::data {

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
