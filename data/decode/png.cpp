#include "data/decode/png.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "data/decode/image.h"
#include "data/decode/png_fast.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::data {
namespace {

// An image that libpng reads or writes. Errors leave libpng by longjmp, which must not cross a
// frame with destructors: this and the extern "C" functions have none.
struct LibpngImage {
  std::uint8_t* pixels;  // [height, width, channels]
  std::uint32_t height;
  std::uint32_t width;
  std::uint32_t channels;    // of `pixels`, 1 or 3
  const std::uint8_t* file;  // to decode
  std::size_t bytes;
  std::size_t at;  // how far libpng has read
  bool truncated;
  std::uint8_t* blended;  // to decode with alpha: room for [height, width, channels + 1]; else null
  char reason[160];
};

}  // namespace

extern "C" {

static void warpstep_png_read(png_structp png, png_bytep to, std::size_t bytes) {
  auto* from = static_cast<LibpngImage*>(png_get_io_ptr(png));
  if (bytes > from->bytes - from->at) {
    from->truncated = true;
    png_error(png, "the file ends too early");
  }
  std::memcpy(to, from->file + from->at, bytes);
  from->at += bytes;
}

static void warpstep_png_error(png_structp png, png_const_charp message) {
  auto* image = static_cast<LibpngImage*>(png_get_error_ptr(png));
  std::snprintf(image->reason, sizeof image->reason, "%s", message);
  png_longjmp(png, 1);
}

static void warpstep_png_warning(png_structp, png_const_charp) {}

static void warpstep_png_append(png_structp png, png_bytep from, std::size_t bytes) {
  // The exception must not pass through libpng: it becomes libpng's error.
  auto* file = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(png));
  try {
    file->insert(file->end(), from, from + bytes);
    return;
  } catch (...) {
  }
  png_error(png, "out of memory");
}

static void warpstep_png_flush(png_structp) {}

// Makes every kind of damage an error, and skips all chunks but the image's.
static void warpstep_png_be_strict(png_structp png, const LibpngImage* image) {
  static const png_byte transparency[] = "tRNS";  // with its final 0, as libpng wants a list
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, 0);  // a wrong Adler sum is an error, not a warning
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // texts, profiles, ...
  if (image->blended == nullptr)
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, transparency, 1);
  png_set_user_limits(png, image->width, image->height);
}

static void warpstep_png_want_bytes(png_structp png, const LibpngImage* image, int colour) {
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  if (image->blended != nullptr) png_set_tRNS_to_alpha(png);
  png_set_strip_16(png);
  if (image->blended == nullptr) png_set_strip_alpha(png);
  if (image->channels == 3 && (colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
}

// Fills image->pixels: palettes looked up, 16 bits reduced to the high 8, fewer than 8 widened,
// alpha dropped, gray repeated where channels is 3. False with `reason` when the file is broken.
// The caller has checked the header: a file with colour has channels 3.
static bool warpstep_png_decode(LibpngImage* image) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, image, warpstep_png_error,
                                           warpstep_png_warning);
  png_infop volatile info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    std::snprintf(image->reason, sizeof image->reason, "out of memory");
    return false;
  }
  if (setjmp(png_jmpbuf(png)) != 0) {
    png_infop owned = info;
    png_destroy_read_struct(&png, &owned, nullptr);
    return false;
  }
  png_set_read_fn(png, image, warpstep_png_read);
  warpstep_png_be_strict(png, image);
  png_read_info(png, info);
  warpstep_png_want_bytes(png, image, png_get_color_type(png, info));
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const std::size_t row_bytes =
      std::size_t{image->width} * (image->channels + (image->blended != nullptr ? 1U : 0U));
  std::uint8_t* rows = image->blended != nullptr ? image->blended : image->pixels;
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "rows of another length");
  for (int pass = 0; pass < passes; ++pass) {
    for (std::uint32_t y = 0; y < image->height; ++y) {
      png_read_row(png, rows + y * row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
  png_infop owned = info;
  png_destroy_read_struct(&png, &owned, nullptr);
  return true;
}

// Appends the 8-bit PNG file of image->pixels. False with `reason` when memory runs out.
static bool warpstep_png_encode(LibpngImage* image, std::vector<std::uint8_t>* file) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, image, warpstep_png_error,
                                            warpstep_png_warning);
  png_infop volatile info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr || setjmp(png_jmpbuf(png)) != 0) {
    png_infop owned = info;
    png_destroy_write_struct(&png, &owned);
    return false;
  }
  png_set_write_fn(png, file, warpstep_png_append, warpstep_png_flush);
  png_set_IHDR(png, info, image->width, image->height, 8,
               image->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  const std::size_t row_bytes = std::size_t{image->width} * image->channels;
  for (std::uint32_t y = 0; y < image->height; ++y) {
    png_write_row(png, image->pixels + y * row_bytes);
  }
  png_write_end(png, info);
  png_infop owned = info;
  png_destroy_write_struct(&png, &owned);
  return true;
}

}  // extern "C"

namespace {

constexpr std::size_t header_bytes = 33;  // signature, IHDR with its length and CRC

struct Colour {
  const char* name;
  int samples;  // per pixel
  std::int64_t channels;
  unsigned depths;  // bit d is set if d bits per sample are allowed
};

// Indexed by the header's colour type; a null name where the format defines none.
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

// The colour type of a file with a complete header.
const Colour& check_colour(std::span<const std::uint8_t> file, const std::string& path) {
  const unsigned depth = file[24];
  const unsigned type = file[25];
  if (type >= colours.size() || colours[type].name == nullptr) {
    fail<DataError>("{}: byte 25: unknown colour type {}; copy the file again", path, type);
  }
  const Colour& colour = colours[type];
  if (depth > 16 || (colour.depths >> depth & 1U) == 0) {
    fail<DataError>("{}: byte 24: a {} PNG cannot have {} bits per sample; copy the file again",
                    path, colour.name, depth);
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
    fail<DataError>("{}: byte 16: claims {} x {} pixels; 1 to {} per side are allowed", path, width,
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

bool has_alpha(std::span<const std::uint8_t> file) {
  constexpr std::size_t signature_bytes = 8, frame_bytes = 12;  // of a chunk: length, name, CRC
  if (file.size() < header_bytes || file[0] != 0x89 || file[1] != 'P') return false;
  if (file[25] == 4 || file[25] == 6) return true;
  for (std::size_t at = signature_bytes; at + frame_bytes <= file.size();) {
    const std::string_view name(reinterpret_cast<const char*>(&file[at + 4]), 4);
    if (name == "tRNS") return true;
    if (name == "IDAT") return false;
    at += frame_bytes + std::size_t{big_endian(&file[at])};
  }
  return false;
}

namespace {

// Rounded to nearest.
std::uint8_t blend(unsigned colour, unsigned alpha, unsigned background) {
  return static_cast<std::uint8_t>((colour * alpha + background * (255 - alpha) + 127) / 255);
}

void blend_pixels(std::span<const std::uint8_t> blended, const std::string& path,
                  const Shape& shape, Alpha alpha, std::span<std::uint8_t> pixels) {
  const std::size_t channels = idx(shape[2]);
  std::uint8_t* to = pixels.data();
  for (std::size_t i = 0; i < blended.size(); i += channels + 1) {
    const unsigned opaque = blended[i + channels];
    if (opaque < 255 && alpha == Alpha::refuse) {
      const auto pixel = static_cast<std::int64_t>(i / (channels + 1));
      fail<DataError>(
          "{}: pixel ({}, {}) is transparent (alpha {} of 255), and --alpha is refuse; use --alpha "
          "white, black or drop, or convert with: mogrify -background white -alpha remove",
          path, pixel % shape[1], pixel / shape[1], opaque);
    }
    for (std::size_t c = 0; c < channels; ++c)
      *to++ = blend(blended[i + c], opaque, alpha == Alpha::black ? 0 : 255);
  }
}

}  // namespace

void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels, Alpha alpha) {
  const Shape shape = png_shape(file, path);
  if (shape[0] != expected[0] || shape[1] != expected[1]) {
    fail<DataError>(
        "{}: is {} x {} pixels, but must be {} x {}; crop or resize all images to one size "
        "(--transforms), or convert with: mogrify -resize '{}x{}!'",
        path, shape[1], shape[0], expected[1], expected[0], expected[1], expected[0]);
  }
  if (expected[2] == 1 && shape[2] == 3) {
    fail<DataError>(
        "{}: has colour ({} PNG), but the images of its set or run are gray (1 channel); convert "
        "it with: mogrify -colorspace Gray {} (in a set you can make the first image RGB instead)",
        path, colours[file[25]].name, shell_word(path));
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
                    nullptr,
                    {}};
  std::vector<std::uint8_t> blended;
  if (alpha != Alpha::drop && has_alpha(file)) {
    blended.resize(idx(expected[0] * expected[1] * (expected[2] + 1)));
    image.blended = blended.data();
  }
  if (warpstep_png_decode(&image)) {
    if (!blended.empty()) blend_pixels(blended, path, expected, alpha, pixels);
    return;
  }
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
                    nullptr,
                    {}};
  std::vector<std::uint8_t> file;
  if (!warpstep_png_encode(&image, &file)) {
    fail<DataError>("cannot encode an image of {} as PNG: {}", shape.text(), image.reason);
  }
  return file;
}

}  // namespace warpstep::data
