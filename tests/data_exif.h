// JPEG files with EXIF data.
#pragma once

#include <cstdint>
#include <vector>

namespace warpstep::data::testing {

// APP1 with a directory of two entries, the second the orientation.
inline std::vector<std::uint8_t> exif_segment(std::uint16_t orientation, bool little_endian) {
  std::vector<std::uint8_t> bytes{0xff, 0xe1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
  const auto add = [&](std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i)
      bytes.push_back(static_cast<std::uint8_t>(value >> 8 * (little_endian ? i : size - 1 - i)));
  };
  const auto entry = [&](std::uint32_t tag, std::uint32_t value) {
    add(tag, 2);
    add(3, 2);  // SHORT
    add(1, 4);
    add(value, 2);
    add(0, 2);
  };
  bytes.insert(bytes.end(), 2, little_endian ? 'I' : 'M');
  add(42, 2);
  add(8, 4);  // where the directory begins
  add(2, 2);
  entry(0x0100, 640);
  entry(0x0112, orientation);
  add(0, 4);  // no other directory
  bytes[3] = static_cast<std::uint8_t>(bytes.size() - 2);
  return bytes;
}

// The segment after SOI.
inline std::vector<std::uint8_t> with_segment(std::vector<std::uint8_t> jpeg,
                                              const std::vector<std::uint8_t>& segment) {
  jpeg.insert(jpeg.begin() + 2, segment.begin(), segment.end());
  return jpeg;
}

}  // namespace warpstep::data::testing
