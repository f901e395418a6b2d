#include "data/png.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::int64_t max_side = 16384;  // pixels
constexpr std::size_t header_bytes = 33;  // signature, IHDR with its length and CRC
// Deflate cannot expand more than 1032 times: more pixels than that are a lying header.
constexpr std::int64_t max_expansion = 1032;

std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

const char* colour_name(int type) {
  switch (type) {
    case PNG_COLOR_TYPE_GRAY: return "gray";
    case PNG_COLOR_TYPE_RGB: return "RGB";
    case PNG_COLOR_TYPE_PALETTE: return "paletted";
    case PNG_COLOR_TYPE_GRAY_ALPHA: return "gray with alpha";
    case PNG_COLOR_TYPE_RGB_ALPHA: return "RGB with alpha";
    default: return nullptr;
  }
}

constexpr const char* wanted = "expected 8-bit RGB or gray without alpha; convert with: mogrify";

// All that the C part of decoding needs. It holds nothing with a destructor, because libpng leaves
// by longjmp.
struct Decoding {
  const std::uint8_t* data;
  std::size_t bytes;
  std::size_t at;
  std::uint8_t* pixels;
  std::uint32_t height;
  std::uint32_t width;
  std::size_t row_bytes;
  bool truncated;
  char reason[160];
};

extern "C" {

void warpstep_png_read(png_structp png, png_bytep to, std::size_t bytes) {
  auto* from = static_cast<Decoding*>(png_get_io_ptr(png));
  if (bytes > from->bytes - from->at) {
    from->truncated = true;
    png_error(png, "the file ends too early");
  }
  std::memcpy(to, from->data + from->at, bytes);
  from->at += bytes;
}

void warpstep_png_error(png_structp png, png_const_charp message) {
  auto* decoding = static_cast<Decoding*>(png_get_error_ptr(png));
  std::snprintf(decoding->reason, sizeof decoding->reason, "%s", message);
  png_longjmp(png, 1);
}

void warpstep_png_warning(png_structp, png_const_charp) {}

// libpng's calls, in a frame that a longjmp may leave. False with a reason when it failed.
bool warpstep_png_decode(Decoding* decoding) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, decoding, warpstep_png_error,
                                           warpstep_png_warning);
  png_infop volatile info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    std::snprintf(decoding->reason, sizeof decoding->reason, "out of memory");
    return false;
  }
  if (setjmp(png_jmpbuf(png)) != 0) {
    png_infop owned = info;
    png_destroy_read_struct(&png, &owned, nullptr);
    return false;
  }
  png_set_read_fn(png, decoding, warpstep_png_read);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, 0);  // a wrong Adler sum is an error, not a warning
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // texts, profiles, ...
  png_set_user_limits(png, decoding->width, decoding->height);
  png_read_info(png, info);
  if (png_get_valid(png, info, PNG_INFO_tRNS) != 0) {
    png_error(png, "it has a transparent colour (tRNS); convert with: mogrify -alpha off");
  }
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != decoding->row_bytes) png_error(png, "rows of another length");
  for (int pass = 0; pass < passes; ++pass) {
    for (std::uint32_t y = 0; y < decoding->height; ++y) {
      png_read_row(png, decoding->pixels + y * decoding->row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
  png_infop owned = info;
  png_destroy_read_struct(&png, &owned, nullptr);
  return true;
}

void warpstep_png_append(png_structp png, png_bytep from, std::size_t bytes) {
  // A vector is all that grows here; out of memory is turned into libpng's error below.
  auto* file = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(png));
  try {
    file->insert(file->end(), from, from + bytes);
    return;
  } catch (...) {
  }
  png_error(png, "out of memory");
}

void warpstep_png_flush(png_structp) {}

bool warpstep_png_encode(Decoding* image, int colour, std::vector<std::uint8_t>* file) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, image, warpstep_png_error,
                                            warpstep_png_warning);
  png_infop volatile info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr || setjmp(png_jmpbuf(png)) != 0) {
    png_infop owned = info;
    png_destroy_write_struct(&png, &owned);
    return false;
  }
  png_set_write_fn(png, file, warpstep_png_append, warpstep_png_flush);
  png_set_IHDR(png, info, image->width, image->height, 8, colour, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (std::uint32_t y = 0; y < image->height; ++y) {
    png_write_row(png, image->pixels + y * image->row_bytes);
  }
  png_write_end(png, info);
  png_infop owned = info;
  png_destroy_write_struct(&png, &owned);
  return true;
}

}  // extern "C"

}  // namespace

Shape png_shape(std::span<const std::uint8_t> file, const std::string& path) {
  static constexpr std::array<std::uint8_t, 8> signature{0x89, 'P', 'N', 'G', 13, 10, 26, 10};
  const std::size_t common = std::min(file.size(), signature.size());
  if (file.empty()) fail<DataError>("{}: is empty, expected a PNG file; copy it again", path);
  if (!std::equal(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(common),
                  signature.begin())) {
    fail<DataError>("{}: is not a PNG file; {} -format png", path, wanted);
  }
  if (file.size() < header_bytes) {
    fail<DataError>("{}: is truncated: {} bytes, a PNG header has {}; copy the file again", path,
                    file.size(), header_bytes);
  }
  if (big_endian(&file[8]) != 13 || std::memcmp(&file[12], "IHDR", 4) != 0) {
    fail<DataError>("{}: byte 8: the PNG file does not begin with its header; copy it again", path);
  }
  const std::int64_t width = big_endian(&file[16]);
  const std::int64_t height = big_endian(&file[20]);
  const int depth = file[24];
  const int colour = file[25];
  if (colour_name(colour) == nullptr) {
    fail<DataError>("{}: byte 25: no PNG has colour type {}; copy the file again", path, colour);
  }
  if (colour != PNG_COLOR_TYPE_GRAY && colour != PNG_COLOR_TYPE_RGB) {
    fail<DataError>("{}: is a {} PNG, {} {}", path, colour_name(colour), wanted,
                    colour == PNG_COLOR_TYPE_PALETTE ? "-define png:color-type=2" : "-alpha off");
  }
  if (depth != 8) {
    fail<DataError>("{}: is a {}-bit {} PNG, {} -depth 8", path, depth, colour_name(colour),
                    wanted);
  }
  const std::int64_t channels = colour == PNG_COLOR_TYPE_RGB ? 3 : 1;
  if (width < 1 || height < 1 || width > max_side || height > max_side) {
    fail<DataError>("{}: byte 16: claims {} x {} pixels, allowed are 1 to {} a side", path, width,
                    height, max_side);
  }
  const auto file_bytes = static_cast<std::int64_t>(file.size());
  if (width * height * channels > file_bytes * max_expansion) {
    fail<DataError>(
        "{}: byte 16: claims {} x {} pixels, but {} bytes cannot hold them; copy the "
        "file again",
        path, width, height, file.size());
  }
  return Shape{height, width, channels};
}

void decode_png(std::span<const std::uint8_t> file, const std::string& path, const Shape& expected,
                std::span<std::uint8_t> pixels) {
  const Shape shape = png_shape(file, path);
  if (shape != expected) {
    fail<DataError>(
        "{}: is {} (height x width x channels), but the data set's first file is {}; all files "
        "must be alike, convert with: mogrify -resize '{}x{}!' -type {}",
        path, shape.text(), expected.text(), expected[1], expected[0],
        expected[2] == 3 ? "TrueColor" : "Grayscale");
  }
  if (pixels.size() != static_cast<std::size_t>(shape.count())) {
    fail<UsageError>("decode_png: {} bytes for an image of {}", pixels.size(), shape.text());
  }
  Decoding decoding{file.data(),
                    file.size(),
                    0,
                    pixels.data(),
                    static_cast<std::uint32_t>(shape[0]),
                    static_cast<std::uint32_t>(shape[1]),
                    static_cast<std::size_t>(shape[1] * shape[2]),
                    false,
                    {}};
  if (warpstep_png_decode(&decoding)) return;
  if (decoding.truncated) {
    fail<DataError>(
        "{}: is truncated: the PNG data ends at byte {} before the image does; copy "
        "the file again",
        path, file.size());
  }
  fail<DataError>("{}: byte {}: is a broken PNG: {}; copy the file again", path, decoding.at,
                  decoding.reason);
}

std::vector<std::uint8_t> encode_png(const Shape& shape, std::span<const std::uint8_t> pixels) {
  if (shape.rank() != 3 || (shape[2] != 1 && shape[2] != 3) ||
      pixels.size() != static_cast<std::size_t>(shape.count())) {
    fail<UsageError>("encode_png: {} bytes for an image of {}", pixels.size(), shape.text());
  }
  Decoding image{nullptr,
                 0,
                 0,
                 const_cast<std::uint8_t*>(pixels.data()),
                 static_cast<std::uint32_t>(shape[0]),
                 static_cast<std::uint32_t>(shape[1]),
                 static_cast<std::size_t>(shape[1] * shape[2]),
                 false,
                 {}};
  std::vector<std::uint8_t> file;
  if (!warpstep_png_encode(&image, shape[2] == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                           &file)) {
    fail<DataError>("an image of {} cannot be written as PNG: {}", shape.text(), image.reason);
  }
  return file;
}

}  // namespace warpstep::data
