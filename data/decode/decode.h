// Decodes samples to pixels: chooses the decoder of each encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/decode/image.h"

namespace warpstep::data {

class JpegDecoder;
class PngFastReader;

// Which of several routes to the same pixels is used; for comparing their speed.
struct DecoderChoice {
  bool fast_png = true;  // try PngFastReader before libpng
  JpegRoute jpeg_route = JpegRoute::automatic;
};

// Buffers and decoders that are reused from sample to sample: owned by one worker, never shared
// between threads.
struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;

  std::vector<std::uint8_t> bytes;   // the encoded sample, unless it is a view
  std::vector<std::uint8_t> pixels;  // a whole image, of which a window is copied
  std::unique_ptr<PngFastReader> png;
  std::unique_ptr<JpegDecoder> jpeg;
  DecoderChoice choice;
  // Of the last sample that was decoded: has_alpha() of png.h, exif_orientation() of exif.h.
  bool has_alpha = false;
  int orientation = 1;
  // Sums over all uses of this scratch.
  std::uint64_t bytes_read = 0;
  std::uint64_t read_ns = 0;    // reading the encoded bytes
  std::uint64_t decode_ns = 0;  // turning them into pixels

  // Counts and records bytes that were read from `begin_ns` until now.
  void note_read(std::uint64_t begin_ns, std::uint64_t count);
};

// Shape [height, width, channels] of a sample, from its header. Throws DataError that names
// `name`.
Shape decoded_shape(const Sample& sample, const std::string& name);

// Decodes `window`, which must lie inside the image of `shape` (decoded_shape), as `channels` (1 or
// 3) bytes per pixel into pixels [window.height, window.width, channels]. Skips as much of the rest
// of the image as the format allows. Throws DataError that names `name`.
void decode(const Sample& sample, const std::string& name, const Shape& shape, const Window& window,
            std::int64_t channels, Scratch& scratch, std::span<std::uint8_t> pixels);

}  // namespace warpstep::data
