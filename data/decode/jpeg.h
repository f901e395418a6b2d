// JPEG files: the header, decoding of a window by one of three routes, encoding, and lossless
// conversion to files with restart markers. Ignores the orientation in EXIF, as torchvision's
// ImageFolder does. jpeg.cpp reads markers and chooses the route; jpeg_libjpeg.cpp is all code that
// calls libjpeg-turbo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/decode/image.h"

namespace warpstep::data {

// The markers of a JPEG file (ITU-T T.81, annex B).
namespace marker {
constexpr std::uint8_t prefix = 0xff;
constexpr std::uint8_t sof0 = 0xc0, sof1 = 0xc1, sof2 = 0xc2;  // baseline, extended, progressive
constexpr std::uint8_t dht = 0xc4, jpg = 0xc8, dac = 0xcc;
constexpr std::uint8_t rst0 = 0xd0, rst7 = 0xd7, soi = 0xd8, eoi = 0xd9, sos = 0xda;
constexpr std::uint8_t dqt = 0xdb, dnl = 0xdc, dri = 0xdd, exp = 0xdf;
constexpr std::uint8_t app0 = 0xe0, app14 = 0xee, app15 = 0xef, com = 0xfe;
}  // namespace marker

// A segment with its marker: bytes [begin, begin + bytes) of the file.
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
  // The segments that decoding needs, in the file's order; of APP0 and APP14 only the part that
  // determines the colour transform. If there are more than fit, has_all_segments is false.
  std::array<JpegSegment, 32> segments;
  std::size_t segment_count = 0;
  bool has_all_segments = true;

  // The size of an MCU, the unit of coding, in pixels; with a single component, one 8 x 8 block.
  std::int64_t mcu_height() const;
  std::int64_t mcu_width() const;
  std::int64_t mcu_rows() const;
  std::int64_t mcus_per_row() const;
  std::int64_t blocks() const;  // of 8 x 8 samples, all components, without padding
  // A pixel depends on chroma samples up to this many pixels away, so a window depends only on
  // itself and this margin. 0 where no component is subsampled.
  std::int64_t margin() const;
  bool has_several_scans() const { return frame == marker::sof2 || scan_components < components; }
};

// Throws DataError, naming `name`, the byte and the fix, for a file that is not a JPEG, is
// truncated within the header, or has an unsupported kind or size.
JpegHeader read_jpeg_header(std::span<const std::uint8_t> file, const std::string& name);

// Finds the first byte of every restart interval, row by row, then the byte after the last;
// interval i ends 2 bytes (a marker) before the next begins. False unless every interval is within
// one row of MCUs and the restart markers are complete, in order and the only ones: otherwise
// intervals cannot be picked out.
bool find_intervals(std::span<const std::uint8_t> file, const JpegHeader& header,
                    std::vector<std::size_t>& begins);

// Cuts the restart intervals that a window needs out of a JPEG file, as a small JPEG file of their
// own. Reuses its buffers from file to file.
class JpegExcerpt {
 public:
  // Restart markers prevent the decoder's fast path: when more than this share of the intervals (in
  // 1/8) is needed, skipping the others gains nothing.
  static constexpr std::int64_t worthwhile_eighths = 7;

  // Cuts out the intervals of `window` and its margin; false when the file has no usable intervals,
  // or, with `only_if_worthwhile`, when nearly all are needed.
  bool cut(std::span<const std::uint8_t> file, const JpegHeader& header, const Window& window,
           bool only_if_worthwhile);

  // A standard JPEG file of rectangle() of the image.
  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const Window& rectangle() const { return rectangle_; }
  // The position in the whole file of byte `at` of bytes().
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

// Shape [height, width, channels] by the header; channels is 1 (gray) or 3. Throws DataError,
// naming `name` and the fix, for a file that is not a JPEG, for sizes out of bounds or too large
// for the file's bytes, for colour spaces other than gray, YCbCr and RGB, and for 12-bit,
// arithmetic-coded and lossless files.
Shape jpeg_shape(std::span<const std::uint8_t> file, const std::string& name);

// Owned by one worker: reuses libjpeg-turbo's state and its buffers from file to file.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;

  // Decodes `window` into pixels [window.height, window.width, channels]. With channels 3, gray is
  // repeated; with channels 1, a colour file is refused. The pixels are those of libjpeg-turbo's
  // accurate integer transform with smooth upsampling over the whole image, equal to Pillow's.
  // Warnings of the decoder are errors: a file that is truncated or damaged in the part that this
  // window needs throws DataError naming `name`, the fault and the byte. Returns the route used: if
  // the file does not allow `route`, the next slower one.
  JpegRoute decode(std::span<const std::uint8_t> file, const std::string& name,
                   const Window& window, std::int64_t channels, std::span<std::uint8_t> pixels,
                   JpegRoute route = JpegRoute::automatic);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same image, losslessly, with restart markers every few blocks for JpegRoute::seek and with
// Huffman tables optimised for it; every decoder reads it. The interval is the largest divisor up
// to 5 of the blocks in a row, else a whole row. Verifies that the coefficients of both files are
// equal. Keeps all APPn and COM segments; drops bytes after the end of the image. Only for baseline
// files (jpeg_traits); throws DataError as decoding does.
std::vector<std::uint8_t> make_seekable(std::span<const std::uint8_t> file,
                                        const std::string& name);

// Whether the file is baseline (SOF0) and has restart markers that JpegRoute::seek can use.
struct JpegTraits {
  bool baseline = false;
  bool seekable = false;
};
JpegTraits jpeg_traits(std::span<const std::uint8_t> file, const std::string& name);

// Encodes an image of 1 or 3 channels as baseline JPEG, 4:2:0; the same libjpeg-turbo gives the
// same bytes. `quality` is from 1 to 100.
std::vector<std::uint8_t> encode_jpeg(const Shape& shape, std::span<const std::uint8_t> pixels,
                                      int quality = 90);

}  // namespace warpstep::data
