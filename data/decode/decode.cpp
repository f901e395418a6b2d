#include "data/decode/decode.h"

#include <cstring>

#include "data/decode/exif.h"
#include "data/decode/jpeg.h"
#include "data/decode/png.h"
#include "data/decode/png_fast.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/record.h"

namespace warpstep::data {
namespace {

const record::Name read_name{"read", record::Kind::stage};
const record::Name decode_name{"decode", record::Kind::stage};

void copy_window(std::span<const std::uint8_t> image, const Shape& shape, const Window& window,
                 std::span<std::uint8_t> pixels) {
  const auto channels = static_cast<std::size_t>(shape[2]);
  const std::size_t row_bytes = idx(shape[1]) * channels;
  const std::size_t bytes = idx(window.width) * channels;
  const std::uint8_t* from = image.data() + idx(window.y) * row_bytes + idx(window.x) * channels;
  if (bytes == row_bytes) {
    std::memcpy(pixels.data(), from, idx(window.height) * bytes);
    return;
  }
  for (std::size_t y = 0; y < idx(window.height); ++y)
    std::memcpy(pixels.data() + y * bytes, from + y * row_bytes, bytes);
}

void decode_whole_png(const Sample& sample, const std::string& name, const Shape& shape,
                      Scratch& scratch, std::span<std::uint8_t> pixels) {
  scratch.has_alpha = has_alpha(sample.bytes);
  if (sample.alpha != Alpha::drop && scratch.has_alpha)
    return decode_png(sample.bytes, name, shape, pixels, sample.alpha);
  if (!scratch.png) scratch.png = std::make_unique<PngFastReader>();
  if (!scratch.choice.fast_png || !scratch.png->decode(sample.bytes, shape, pixels))
    decode_png(sample.bytes, name, shape, pixels);
}

}  // namespace

Scratch::Scratch() = default;
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

void Scratch::note_read(std::uint64_t begin_ns, std::uint64_t count) {
  read_ns += record::note_since(read_name, begin_ns, count);
  bytes_read += count;
}

Shape decoded_shape(const Sample& sample, const std::string& name) {
  switch (sample.encoding) {
    case Encoding::pixels: return sample.shape;
    case Encoding::png: return png_shape(sample.bytes, name);
    case Encoding::jpeg: return jpeg_shape(sample.bytes, name);
  }
  fail<DataError>("{}: unknown encoding", name);
}

void decode(const Sample& sample, const std::string& name, const Shape& shape, const Window& window,
            std::int64_t channels, Scratch& scratch, std::span<std::uint8_t> pixels) {
  if (!is_inside(window, shape))
    fail<DataError>(
        "{}: is {} x {} pixels, too small for the window of rows {} to {} and columns {} to {}",
        name.empty() ? "the image" : name, shape[1], shape[0], window.y, window.y + window.height,
        window.x, window.x + window.width);
  if (const Shape row{window.height, window.width, channels}; pixels.size() < idx(row.count()))
    fail<UsageError>("{}: {} bytes for {} pixels", name.empty() ? "the image" : name, pixels.size(),
                     row.text());
  const std::uint64_t begin = now_ns();
  scratch.has_alpha = false;
  scratch.orientation = 1;
  const Shape wanted{shape[0], shape[1], channels};
  switch (sample.encoding) {
    case Encoding::pixels:
      if (shape[2] != channels || sample.bytes.size() != idx(wanted.count()))
        fail<DataError>("{}: {} bytes as an image of {}; images of its set have {} channels",
                        name.empty() ? "decoded pixels" : name, sample.bytes.size(), shape.text(),
                        channels);
      copy_window(sample.bytes, wanted, window, pixels);
      break;
    case Encoding::jpeg:
      scratch.orientation = exif_orientation(sample.bytes);
      if (!scratch.jpeg) scratch.jpeg = std::make_unique<JpegDecoder>();
      scratch.jpeg->decode(sample.bytes, name, window, channels, pixels, scratch.choice.jpeg_route);
      break;
    case Encoding::png:
      if (window == Window{0, 0, shape[0], shape[1]}) {
        decode_whole_png(sample, name, wanted, scratch, pixels);
        break;
      }
      scratch.pixels.resize(idx(wanted.count()));
      decode_whole_png(sample, name, wanted, scratch, scratch.pixels);
      copy_window(scratch.pixels, wanted, window, pixels);
      break;
  }
  scratch.decode_ns += record::note_since(decode_name, begin);
}

}  // namespace warpstep::data
