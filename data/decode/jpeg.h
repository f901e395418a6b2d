// JPEG files to pixels, and only as much of them as is wanted. What a camera's EXIF says of the
// orientation is ignored, as torchvision's ImageFolder does.
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

// The markers of a JPEG file (ITU-T T.81, annex B), read by hand: what the image is, and where its
// restart intervals lie.

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

// From a JPEG file with restart markers, the small JPEG file of the intervals that a window needs.

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

// Shape [height, width, channels] that the header promises; channels is 1 (gray) or 3. Throws
// DataError, naming `name` and the fix, for what is no JPEG, for sizes out of bounds or that the
// file's bytes cannot hold, for colour spaces other than gray, YCbCr and RGB, and for 12-bit,
// arithmetic-coded and lossless files.
Shape jpeg_shape(std::span<const std::uint8_t> file, const std::string& name);

// Owned by one worker: libjpeg-turbo's state and the buffers are kept from file to file.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;

  // Decodes `window` into pixels [window.height, window.width, channels]; channels 3 of a gray file
  // repeats it, 1 of a colour file is refused. The pixels are those of libjpeg-turbo's accurate
  // integer transform with smooth upsampling over the whole image, as Pillow gives them. Warnings
  // of the decoder are errors: a file that is cut or damaged where this window needs it throws
  // DataError naming `name`, the fault and the byte. Returns the route taken; a route that is asked
  // for and that the file does not allow is replaced by the next slower one.
  JpegRoute decode(std::span<const std::uint8_t> file, const std::string& name,
                   const Window& window, std::int64_t channels, std::span<std::uint8_t> pixels,
                   JpegRoute route = JpegRoute::automatic);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same image, losslessly, with restart markers every few blocks so that JpegRoute::seek can
// take it, and with Huffman tables made for it; every decoder reads it. The interval is the largest
// divisor up to 5 of the blocks in a row, else a whole row. Verified: the coefficients of both
// files are equal. All APPn and COM segments are kept; what follows the end of the image is not.
// Only for baseline files (jpeg_traits); throws DataError as decoding does.
std::vector<std::uint8_t> make_seekable(std::span<const std::uint8_t> file,
                                        const std::string& name);

// Whether the file is baseline (SOF0) and has restart markers that JpegRoute::seek can use.
struct JpegTraits {
  bool baseline = false;
  bool seekable = false;
};
JpegTraits jpeg_traits(std::span<const std::uint8_t> file, const std::string& name);

// The JPEG file of an image of 1 or 3 channels, 4:2:0, baseline; the same bytes for the same
// libjpeg-turbo. `quality` is from 1 to 100.
std::vector<std::uint8_t> encode_jpeg(const Shape& shape, std::span<const std::uint8_t> pixels,
                                      int quality = 90);

}  // namespace warpstep::data
