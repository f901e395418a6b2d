// A fast decoder for the PNG files of most training sets: 8 bits, gray or RGB, with or without
// alpha, not interlaced. libpng (png.h) decodes all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::data {

// How many bytes after the filtered rows may be read: loads are of 4 bytes where a pixel has 3.
inline constexpr std::size_t png_filter_slack_bytes = 4;

// Undoes PNG's five row filters (ISO/IEC 15948, section 9). `filtered` has `height` rows of 1
// filter byte and row_bytes; `pixels` receives rows of row_bytes without gaps. A pixel has
// pixel_bytes, 1 to
// 4. `zeros` is a buffer that is reused from call to call. False for an undefined filter.
bool undo_png_filters(const std::uint8_t* filtered, std::size_t height, std::size_t row_bytes,
                      std::size_t pixel_bytes, std::vector<std::uint8_t>& zeros,
                      std::uint8_t* pixels);

// A number with its most significant byte first, as in PNG chunks and zlib's trailer.
constexpr std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

// Owned by one worker: reuses its buffers from file to file.
class PngFastReader {
 public:
  PngFastReader();
  ~PngFastReader();
  PngFastReader(PngFastReader&&) noexcept;
  PngFastReader& operator=(PngFastReader&&) noexcept;

  // Decodes to the same pixels as decode_png(). False for every file that decode_png() refuses, and
  // for kinds that this decoder does not support: call decode_png() then, which reports errors.
  // One difference: deflate data with correct checksums that uses a code which its block does not
  // define is accepted here and refused by zlib.
  // `pixels` may have been written to in either case. Throws only std::bad_alloc; allocates in
  // proportion to `expected` and to the file's size.
  bool decode(std::span<const std::uint8_t> file, const Shape& expected,
              std::span<std::uint8_t> pixels);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace warpstep::data
