#include "data/png.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "data/image.h"
#include "data/png_fast.h"
#include "data/png_libpng.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t header_bytes = 33;  // signature, IHDR with its length and CRC

struct Colour {
  const char* name;
  int samples;  // a pixel
  std::int64_t channels;
  unsigned depths;  // bit d is set where d bits a sample are allowed
};

// By the header's colour type; a null name where the format has none.
constexpr std::array<Colour, 7> colours{{
    {"gray", 1, 1, 1U << 1 | 1U << 2 | 1U << 4 | 1U << 8 | 1U << 16},
    {},
    {"RGB", 3, 3, 1U << 8 | 1U << 16},
    {"paletted", 1, 3, 1U << 1 | 1U << 2 | 1U << 4 | 1U << 8},
    {"gray with alpha", 2, 1, 1U << 8 | 1U << 16},
    {},
    {"RGB with alpha", 4, 3, 1U << 8 | 1U << 16},
}};

void check_begin(std::span<const std::uint8_t> file, const std::string& path) {
  static constexpr std::array<std::uint8_t, 8> signature{0x89, 'P', 'N', 'G', 13, 10, 26, 10};
  if (file.empty()) fail<DataError>("{}: is empty, expected a PNG file; copy it again", path);
  const std::size_t common = std::min(file.size(), signature.size());
  if (!std::equal(signature.begin(), signature.begin() + common, file.begin())) {
    fail<DataError>("{}: is not a PNG file; convert with: mogrify -format png", path);
  }
  if (file.size() < header_bytes) {
    fail<DataError>("{}: is truncated: {} bytes, a PNG header has {}; copy the file again", path,
                    file.size(), header_bytes);
  }
  if (big_endian(&file[8]) != 13 || std::memcmp(&file[12], "IHDR", 4) != 0) {
    fail<DataError>("{}: byte 8: the PNG file does not begin with its header; copy it again", path);
  }
}

// The colour of a file whose first header_bytes are there.
const Colour& check_colour(std::span<const std::uint8_t> file, const std::string& path) {
  const unsigned depth = file[24];
  const unsigned type = file[25];
  if (type >= colours.size() || colours[type].name == nullptr) {
    fail<DataError>("{}: byte 25: no PNG has colour type {}; copy the file again", path, type);
  }
  const Colour& colour = colours[type];
  if (depth > 16 || (colour.depths >> depth & 1U) == 0) {
    fail<DataError>("{}: byte 24: no {} PNG has {} bits a sample; copy the file again", path,
                    colour.name, depth);
  }
  return colour;
}

}  // namespace

Shape png_shape(std::span<const std::uint8_t> file, const std::string& path) {
  check_begin(file, path);
  const Colour& colour = check_colour(file, path);
  const std::int64_t width = big_endian(&file[16]);
  const std::int64_t height = big_endian(&file[20]);
  if (width < 1 || height < 1 || width > max_image_side || height > max_image_side) {
    fail<DataError>("{}: byte 16: claims {} x {} pixels, allowed are 1 to {} a side", path, width,
                    height, max_image_side);
  }
  const std::int64_t row_bytes = (width * colour.samples * file[24] + 7) / 8;
  if (height * row_bytes > static_cast<std::int64_t>(file.size()) * max_deflate_expansion) {
    fail<DataError>(
        "{}: byte 16: claims {} x {} pixels, but {} bytes cannot hold them; copy the "
        "file again",
        path, width, height, file.size());
  }
  return Shape{height, width, colour.channels};
}

void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels) {
  const Shape shape = png_shape(file, path);
  if (shape[0] != expected[0] || shape[1] != expected[1]) {
    fail<DataError>(
        "{}: is {} x {} pixels, but {} x {} are wanted; crop or resize all images to one size "
        "(--transforms), or convert with: mogrify -resize '{}x{}!'",
        path, shape[1], shape[0], expected[1], expected[0], expected[1], expected[0]);
  }
  if (expected[2] == 1 && shape[2] == 3) {
    fail<DataError>(
        "{}: has colour ({} PNG), but the images of its set are gray (1 channel); convert with: "
        "mogrify -colorspace Gray, or make the set's first image RGB",
        path, colours[file[25]].name);
  }
  if ((expected[2] != 1 && expected[2] != 3) ||
      pixels.size() != static_cast<std::size_t>(expected.count())) {
    fail<UsageError>("decode_png: {} bytes for an image of {}", pixels.size(), expected.text());
  }
  LibpngImage image{pixels.data(),
                    static_cast<std::uint32_t>(expected[0]),
                    static_cast<std::uint32_t>(expected[1]),
                    static_cast<std::uint32_t>(expected[2]),
                    file.data(),
                    file.size(),
                    0,
                    false,
                    {}};
  if (libpng_decode(&image)) return;
  if (image.truncated) {
    fail<DataError>(
        "{}: is truncated: the PNG data ends at byte {} before the image does; copy "
        "the file again",
        path, file.size());
  }
  fail<DataError>("{}: byte {}: is a broken PNG: {}; copy the file again", path, image.at,
                  image.reason);
}

std::vector<std::uint8_t> encode_png(const Shape& shape, std::span<const std::uint8_t> pixels) {
  if (shape.rank() != 3 || (shape[2] != 1 && shape[2] != 3) ||
      pixels.size() != static_cast<std::size_t>(shape.count())) {
    fail<UsageError>("encode_png: {} bytes for an image of {}", pixels.size(), shape.text());
  }
  LibpngImage image{const_cast<std::uint8_t*>(pixels.data()),
                    static_cast<std::uint32_t>(shape[0]),
                    static_cast<std::uint32_t>(shape[1]),
                    static_cast<std::uint32_t>(shape[2]),
                    nullptr,
                    0,
                    0,
                    false,
                    {}};
  std::vector<std::uint8_t> file;
  if (!libpng_encode(&image, &file)) {
    fail<DataError>("an image of {} cannot be written as PNG: {}", shape.text(), image.reason);
  }
  return file;
}

}  // namespace warpstep::data
