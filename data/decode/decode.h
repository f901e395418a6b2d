// Samples to pixels: the one place that knows which decoder an encoding wants.
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

// Which of the ways that give the same pixels is taken: for measurements of one against another.
struct DecoderChoice {
  bool fast_png = true;  // else libpng alone
  JpegRoute jpeg_route = JpegRoute::automatic;
};

// What one reader needs again and again: owned by a worker, never shared between threads.
struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;

  std::vector<std::uint8_t> bytes;   // the encoded sample, where it is no view
  std::vector<std::uint8_t> pixels;  // of a whole image of which a window is wanted
  std::unique_ptr<PngFastReader> png;
  std::unique_ptr<JpegDecoder> jpeg;
  DecoderChoice choice;
  // Sums over all uses of this scratch.
  std::uint64_t bytes_read = 0;
  std::uint64_t read_ns = 0;    // getting the encoded bytes
  std::uint64_t decode_ns = 0;  // turning them into pixels
};

// Shape [height, width, channels] of a sample, from its header alone. Throws DataError that names
// `name`.
Shape decoded_shape(const Sample& sample, const std::string& name);

// Decodes `window`, which must lie inside the image of `shape` (decoded_shape), as `channels` (1 or
// 3) bytes a pixel into pixels [window.height, window.width, channels]. Only as much is decoded as
// the format allows to leave out. Throws DataError that names `name`.
void decode(const Sample& sample, const std::string& name, const Shape& shape, const Window& window,
            std::int64_t channels, Scratch& scratch, std::span<std::uint8_t> pixels);

}  // namespace warpstep::data
