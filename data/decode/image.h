// A sample with its encoding, and the window of an image that is decoded.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/core/types.h"

namespace warpstep::data {

// Pixels; a larger image is refused before memory for it is allocated.
constexpr std::int64_t max_image_side = 16384;
// Deflate expands at most 1032 times: a header that announces more than that is wrong.
constexpr std::int64_t max_deflate_expansion = 1032;

enum class Encoding : std::uint8_t { pixels, png, jpeg };

// What becomes of a PNG's alpha channel or transparent colour: dropped, so that pixels keep their
// stored colour; blended with white or black; or refused, if a pixel is not opaque.
enum class Alpha : std::uint8_t { drop, white, black, refuse };

// The bytes of one sample: a view into a mapped file, or into the Scratch that it was fetched with.
struct Sample {
  std::span<const std::uint8_t> bytes;
  Encoding encoding = Encoding::pixels;
  Shape shape;  // of Encoding::pixels: [height, width, channels]; else in the bytes themselves
  Alpha alpha = Alpha::drop;
};

// How a window of a JPEG file is decoded; all routes give the same pixels. The times of full,
// partial and seek are 1 : 0.55 : 0.23 for 256 x 256 of 800 x 533 pixels (4:2:0, quality 90).
enum class JpegRoute : std::uint8_t {
  automatic,  // the fastest that the file allows
  full,       // every row and column, to the end of the file: finds all damage
  partial,  // any file: entropy decoding down to the window's last row, inverse transforms only of
            // the window
  seek      // baseline files with restart markers: only the intervals that the window needs
};

// A rectangle of an image in pixels; row y, column x is its first.
struct Window {
  std::int64_t y = 0, x = 0;
  std::int64_t height = 0, width = 0;

  bool operator==(const Window&) const = default;
};

inline bool is_inside(const Window& window, const Shape& image) {
  return window.y >= 0 && window.x >= 0 && window.height >= 1 && window.width >= 1 &&
         window.height <= image[0] - window.y && window.width <= image[1] - window.x;
}

// The part of `a` that is in `b`, empty if there is none; always within b's bounds.
Window intersection(const Window& a, const Window& b);

inline constexpr std::uint64_t max_encoded_bytes = std::uint64_t{1} << 30;  // of one sample

// Whether a name ends in .png, or in .jpg or .jpeg, in any case.
bool has_png_name(std::string_view name);
bool has_jpeg_name(std::string_view name);

// The encoding by the first bytes; if they match neither, by the name, whose decoder then reports
// the fault.
Encoding encoding_of(std::span<const std::uint8_t> bytes, std::string_view name);

}  // namespace warpstep::data
