// From a JPEG file with restart markers, the small JPEG file of the intervals that a window needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image.h"
#include "data/jpeg_markers.h"

namespace warpstep::data {

// Buffers are kept from file to file.
class JpegExcerpt {
 public:
  // Restart markers forbid the decoder's fast path: above this share of the intervals, in 1/8,
  // leaving the others out gains nothing.
  static constexpr std::int64_t worthwhile_eighths = 7;

  // Cuts out what `window` and its margin need; false when the file has no intervals to pick from,
  // or `only_if_worthwhile` and nearly all are needed.
  bool cut(std::span<const std::uint8_t> file, const JpegHeader& header, const Window& window,
           bool only_if_worthwhile);

  // A standard JPEG file, rectangle() of the image.
  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const Window& rectangle() const { return rectangle_; }
  // Which byte of the whole file stands at byte `at` of bytes().
  std::size_t position_in_file(std::size_t at) const;

 private:
  struct Copy {
    std::size_t at;    // in bytes_
    std::size_t from;  // in the file
  };
  struct Area {  // intervals
    std::int64_t top, bottom, left, right;
  };

  void append(std::span<const std::uint8_t> file, std::size_t begin, std::size_t bytes);
  void append_header(std::span<const std::uint8_t> file, const JpegHeader& header);
  void append_intervals(std::span<const std::uint8_t> file, const Area& area, std::int64_t per_row);

  std::vector<std::uint8_t> bytes_;
  std::vector<Copy> copies_;
  std::vector<std::size_t> intervals_;
  Window rectangle_;
};

}  // namespace warpstep::data
