#include "data/jpeg.h"
#include "data/jpeg_libjpeg.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

struct Encoding420 {
  const Shape* shape;
  const std::uint8_t* pixels;
  int quality;
};

}  // namespace

extern "C" {

static bool warpstep_jpeg_encode(JpegWriter* writer, const Encoding420* image) {
  if (setjmp(writer->escape->jump) != 0) return false;
  warpstep_jpeg_create_writer(writer);
  j_compress_ptr library = &writer->library;
  const Shape& shape = *image->shape;
  library->image_height = static_cast<JDIMENSION>(shape[0]);
  library->image_width = static_cast<JDIMENSION>(shape[1]);
  library->input_components = static_cast<int>(shape[2]);
  library->in_color_space = shape[2] == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(library);  // 4:2:0
  jpeg_set_quality(library, image->quality, TRUE);
  jpeg_start_compress(library, TRUE);
  while (library->next_scanline < library->image_height) {
    auto row = const_cast<JSAMPROW>(image->pixels +
                                    idx(library->next_scanline) * idx(shape[1] * shape[2]));
    jpeg_write_scanlines(library, &row, 1);
  }
  jpeg_finish_compress(library);
  return true;
}

}  // extern "C"

std::vector<std::uint8_t> encode_jpeg(const Shape& shape, std::span<const std::uint8_t> pixels,
                                      int quality) {
  if (shape.rank() != 3 || (shape[2] != 1 && shape[2] != 3) ||
      pixels.size() != idx(shape.count()) || quality < 1 || quality > 100)
    fail<UsageError>("encode_jpeg: {} bytes for an image of {} in quality {}", pixels.size(),
                     shape.text(), quality);
  std::vector<std::uint8_t> file;
  JpegEscape escape;
  JpegWriter writer(&escape, &file);
  const Encoding420 image{&shape, pixels.data(), quality};
  if (!warpstep_jpeg_encode(&writer, &image))
    fail<DataError>("an image of {} cannot be written as JPEG: {}", shape.text(), escape.reason);
  return file;
}

}  // namespace warpstep::data
