// A fast way through the PNG files that training sets are made of: 8 bits, gray or RGB, with
// alpha or without, not interlaced. Everything else is libpng's (png.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::data {

// PNG's five row filters, undone (ISO/IEC 15948, section 9).

// What may be read behind the filtered rows: loads are of 4 bytes where a pixel has 3.
inline constexpr std::size_t png_filter_slack_bytes = 4;

// `filtered` holds `height` rows of 1 filter byte and row_bytes; `pixels` gets rows of row_bytes
// without a gap. A pixel has pixel_bytes, 1 to 4. `zeros` is a buffer that is kept from call to
// call. False for a filter that the format does not have.
bool undo_png_filters(const std::uint8_t* filtered, std::size_t height, std::size_t row_bytes,
                      std::size_t pixel_bytes, std::vector<std::uint8_t>& zeros,
                      std::uint8_t* pixels);

// The number that PNG's chunks and zlib's trailer write most significant byte first.
constexpr std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

// Owned by one worker: its buffers are kept from file to file.
class PngFastReader {
 public:
  PngFastReader();
  ~PngFastReader();
  PngFastReader(PngFastReader&&) noexcept;
  PngFastReader& operator=(PngFastReader&&) noexcept;

  // Decodes like decode_png(): the same pixels, and false for every file that decode_png() refuses
  // or that is of a kind this way does not take; then decode_png() decides and words the error.
  // One difference is left: deflate data that uses a code which its block leaves undefined, under
  // checksums that fit, is read here and refused by zlib.
  // `pixels` may have been written to in either case. Never throws but std::bad_alloc, and
  // allocates in proportion to `expected` and to the file's true size.
  bool decode(std::span<const std::uint8_t> file, const Shape& expected,
              std::span<std::uint8_t> pixels);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace warpstep::data
