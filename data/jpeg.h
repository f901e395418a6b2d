// JPEG files to pixels, and only as much of them as is wanted. What a camera's EXIF says of the
// orientation is ignored, as torchvision's ImageFolder does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace warpstep::data {

// Shape [height, width, channels] that the header promises; channels is 1 (gray) or 3. Throws
// DataError, naming `name` and the fix, for what is no JPEG, for sizes out of bounds or that the
// file's bytes cannot hold, for colour spaces other than gray, YCbCr and RGB, and for 12-bit,
// arithmetic-coded and lossless files.
Shape jpeg_shape(std::span<const std::uint8_t> file, const std::string& name);

// How a window was decoded; all routes give the same pixels. 256 x 256 of 800 x 533 pixels (4:2:0,
// quality 90) take 1 : 0.55 : 0.23 of the time of full : partial : seek.
enum class JpegRoute : std::uint8_t {
  automatic,  // the fastest that the file allows
  full,       // every row and column, and the file to its end: finds all damage
  partial,    // of any file: entropy decoding of the rows above the window's end, inverse
              // transforms of the window alone
  seek        // of a baseline file with restart markers: only the intervals that the window needs
};

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
