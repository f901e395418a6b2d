#include "data/png_libpng.h"

#include <png.h>

#include <cstdio>
#include <cstring>

namespace warpstep::data {

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
  // A vector is all that grows here; out of memory is turned into libpng's error below.
  auto* file = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(png));
  try {
    file->insert(file->end(), from, from + bytes);
    return;
  } catch (...) {
  }
  png_error(png, "out of memory");
}

static void warpstep_png_flush(png_structp) {}

// What is believed and what is an error.
static void warpstep_png_be_strict(png_structp png, const LibpngImage* image) {
  static const png_byte transparency[] = "tRNS";  // with its final 0, as libpng wants a list
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, 0);  // a wrong Adler sum is an error, not a warning
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // texts, profiles, ...
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, transparency, 1);
  png_set_user_limits(png, image->width, image->height);
}

static void warpstep_png_want_bytes(png_structp png, const LibpngImage* image, int colour) {
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (image->channels == 3 && (colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
}

// libpng's calls, in a frame that a longjmp may leave.
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
  const std::size_t row_bytes = std::size_t{image->width} * image->channels;
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "rows of another length");
  for (int pass = 0; pass < passes; ++pass) {
    for (std::uint32_t y = 0; y < image->height; ++y) {
      png_read_row(png, image->pixels + y * row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
  png_infop owned = info;
  png_destroy_read_struct(&png, &owned, nullptr);
  return true;
}

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

bool libpng_decode(LibpngImage* image) {
  return warpstep_png_decode(image);
}

bool libpng_encode(LibpngImage* image, std::vector<std::uint8_t>* file) {
  return warpstep_png_encode(image, file);
}

}  // namespace warpstep::data
