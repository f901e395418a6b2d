#include "data/jpeg.h"

#include "data/jpeg_libjpeg.h"
#include "data/jpeg_markers.h"
#include "data/jpeg_seek.h"
#include "engine/core/error.h"

namespace warpstep::data {

struct JpegDecoder::Impl {
  JpegEscape escape;
  JpegReader reader{&escape};
  JpegExcerpt excerpt;
  std::vector<std::uint8_t> row;

  Impl() {
    if (!warpstep_jpeg_create_reader(&reader))
      fail<Error>("libjpeg-turbo cannot be used: {}", escape.reason);
  }
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;

Shape jpeg_shape(std::span<const std::uint8_t> file, const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  return Shape{header.height, header.width, header.components};
}

JpegTraits jpeg_traits(std::span<const std::uint8_t> file, const std::string& name) {
  const JpegHeader header = read_jpeg_header(file, name);
  std::vector<std::size_t> intervals;
  return {header.frame == marker::sof0, find_intervals(file, header, intervals)};
}

JpegRoute JpegDecoder::decode(std::span<const std::uint8_t> file, const std::string& name,
                              const Window& window, std::int64_t channels,
                              std::span<std::uint8_t> pixels, JpegRoute route) {
  const JpegHeader header = read_jpeg_header(file, name);
  const Shape shape{header.height, header.width, header.components};
  if (!is_inside(window, shape) || (channels != 1 && channels != 3) ||
      pixels.size() != idx(window.height * window.width * channels))
    fail<UsageError>("JpegDecoder: {} bytes for a window of {} x {} x {} of {}", pixels.size(),
                     window.height, window.width, channels, shape.text());
  if (channels == 1 && header.components == 3)
    fail<DataError>(
        "{}: is a colour JPEG where gray is wanted; convert with: mogrify -colorspace "
        "Gray",
        name);
  Impl& impl = *impl_;
  impl.row.resize(idx(header.width * channels));
  const bool whole = window == Window{0, 0, header.height, header.width};
  if (route == JpegRoute::automatic && whole) route = JpegRoute::full;
  const bool seek =
      (route == JpegRoute::seek || route == JpegRoute::automatic) &&
      impl.excerpt.cut(file, header, window, /*only_if_worthwhile=*/route == JpegRoute::automatic);
  JpegWindow wanted{file,          window,          header.height,
                    header.width,  header.margin(), channels,
                    pixels.data(), impl.row.data(), route != JpegRoute::full};
  if (seek) {
    const Window& rectangle = impl.excerpt.rectangle();
    wanted.file = impl.excerpt.bytes();
    wanted.height = rectangle.height;
    wanted.width = rectangle.width;
    wanted.window.y -= rectangle.y;
    wanted.window.x -= rectangle.x;
  }
  bool partial = false;
  if (!warpstep_jpeg_read(&impl.reader, &wanted, &partial)) {
    const std::size_t at = impl.reader.position();
    throw_broken_jpeg(name, seek ? impl.excerpt.position_in_file(at) : at, impl.escape);
  }
  if (seek) return JpegRoute::seek;
  return partial ? JpegRoute::partial : JpegRoute::full;
}

}  // namespace warpstep::data
