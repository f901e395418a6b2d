// The markers of a JPEG file (ITU-T T.81, annex B), read by hand: what the image is, and where its
// restart intervals lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace warpstep::data {

namespace marker {
constexpr std::uint8_t prefix = 0xff;
constexpr std::uint8_t sof0 = 0xc0, sof1 = 0xc1, sof2 = 0xc2;  // baseline, extended, progressive
constexpr std::uint8_t dht = 0xc4, jpg = 0xc8, dac = 0xcc;
constexpr std::uint8_t rst0 = 0xd0, rst7 = 0xd7, soi = 0xd8, eoi = 0xd9, sos = 0xda;
constexpr std::uint8_t dqt = 0xdb, dnl = 0xdc, dri = 0xdd, exp = 0xdf;
constexpr std::uint8_t app0 = 0xe0, app14 = 0xee, app15 = 0xef, com = 0xfe;
}  // namespace marker

// Bytes [begin, begin + bytes) of the file: a segment with its marker.
struct JpegSegment {
  std::size_t begin = 0;
  std::size_t bytes = 0;
};

struct JpegComponent {
  std::uint8_t across = 1;  // sampling factors, 1 to 4
  std::uint8_t down = 1;
};

// Everything before the coded data of the first scan.
struct JpegHeader {
  std::uint8_t frame = 0;  // marker::sof0, sof1 or sof2
  std::int64_t height = 0, width = 0;
  int components = 0;  // 1 or 3
  std::array<JpegComponent, 3> sampling;
  int scan_components = 0;     // in the first scan
  int restart_interval = 0;    // MCUs, 0: none
  std::size_t data_begin = 0;  // first byte of coded data
  // The segments without which these pixels cannot be had, in their order; an APP0 or APP14 only
  // as far as it decides on the colour transform. More than fit: has_all_segments is false.
  std::array<JpegSegment, 32> segments;
  std::size_t segment_count = 0;
  bool has_all_segments = true;

  // An MCU, the unit of coding, in pixels; of a single component it is one block of 8 x 8.
  std::int64_t mcu_height() const;
  std::int64_t mcu_width() const;
  std::int64_t mcu_rows() const;
  std::int64_t mcus_per_row() const;
  std::int64_t blocks() const;  // of 8 x 8 samples, all components, without padding
  // A pixel is upsampled from chroma samples up to this many pixels away: outside of a window and
  // this margin nothing can be seen in it. 0 where no component is subsampled.
  std::int64_t margin() const;
  bool has_several_scans() const { return frame == marker::sof2 || scan_components < components; }
};

// Throws DataError, naming `name`, the byte and the fix, for what is no JPEG, is cut within the
// header, or is of a kind or size that is not read.
JpegHeader read_jpeg_header(std::span<const std::uint8_t> file, const std::string& name);

// Where the restart intervals begin, row by row, and one past the end of the last; interval i ends
// 2 bytes (a marker) before the next begins. False unless every interval lies within one row of
// MCUs, every marker is there in its order, and nothing else: only then can intervals be picked.
bool find_intervals(std::span<const std::uint8_t> file, const JpegHeader& header,
                    std::vector<std::size_t>& begins);

}  // namespace warpstep::data
