// JPEG files of every kind for the tests of the decoder, written by libjpeg-turbo itself.
#pragma once

#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/decode/jpeg.h"
#include "engine/core/error.h"
#include "engine/core/random.h"

namespace warpstep::data::testing {

using Bytes = std::vector<std::uint8_t>;

struct JpegKind {
  const char* name = "4:2:0";
  int channels = 3;
  int across[3] = {2, 1, 1};  // sampling factors
  int down[3] = {2, 1, 1};
  int restart_interval = 0;  // MCUs
  bool progressive = false;
  int single_scans = 0;         // scans of a single coefficient for each component, before the last
  bool separate_scans = false;  // a sequential scan for each component
  bool rgb = false;             // stored without a colour transform
  bool arithmetic = false;
  bool cmyk = false;
  int quality = 80;
};

// Every kind of file that the decoder supports.
inline const std::vector<JpegKind> every_kind{
    {},
    {.name = "4:4:4", .across = {1, 1, 1}, .down = {1, 1, 1}},
    {.name = "4:2:2", .across = {2, 1, 1}, .down = {1, 1, 1}},
    {.name = "4:4:0", .across = {1, 1, 1}, .down = {2, 1, 1}},
    {.name = "4:1:1", .across = {4, 1, 1}, .down = {1, 1, 1}},
    {.name = "4:1:0", .across = {4, 1, 1}, .down = {2, 1, 1}},
    {.name = "1x4", .across = {1, 1, 1}, .down = {4, 1, 1}},
    {.name = "3x1", .across = {3, 1, 1}, .down = {1, 1, 1}},
    {.name = "2x2, 1x2, 2x1", .across = {2, 1, 2}, .down = {2, 2, 1}},
    {.name = "chroma finer", .across = {1, 2, 2}, .down = {1, 2, 1}},
    {.name = "all 2x1", .across = {2, 2, 2}, .down = {1, 1, 1}},
    {.name = "gray", .channels = 1, .across = {1}, .down = {1}},
    {.name = "gray 2x2", .channels = 1, .across = {2}, .down = {2}},
    {.name = "RGB", .across = {1, 1, 1}, .down = {1, 1, 1}, .rgb = true},
    {.name = "RGB 4:2:0", .rgb = true},
    {.name = "progressive 4:2:0", .progressive = true},
    {.name = "progressive 4:4:4", .across = {1, 1, 1}, .down = {1, 1, 1}, .progressive = true},
    {.name = "progressive 4:2:2", .down = {1, 1, 1}, .progressive = true},
    {.name = "progressive 4:4:0", .across = {1, 1, 1}, .progressive = true},
    {.name = "progressive gray", .channels = 1, .across = {1}, .down = {1}, .progressive = true},
    {.name = "separate scans", .separate_scans = true},
};

// Waves, edges and noise: neighbouring blocks and samples differ everywhere.
inline Bytes scene(std::int64_t height, std::int64_t width, std::int64_t channels,
                   std::uint32_t seed) {
  Bytes pixels;
  pixels.reserve(static_cast<std::size_t>(height * width * channels));
  const auto r = draw(seed, Purpose::synthetic, 0, 0);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const auto noise =
          draw(seed, Purpose::synthetic, 1, static_cast<std::uint64_t>(y * width + x));
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto k = static_cast<std::size_t>(c % 4);
        const double wave = std::sin((0.01 + uniform(r[k]) * 0.3) * static_cast<double>(x + c * y));
        const double value = 128 + 70 * wave + uniform(noise[k]) * 40 - 20;
        const bool inverse = ((x / 7) ^ (y / 5)) % 3 == 1;
        pixels.push_back(static_cast<std::uint8_t>(inverse ? 255 - value : value));
      }
    }
  }
  return pixels;
}

inline void set_kind(jpeg_compress_struct& library, const JpegKind& kind) {
  jpeg_set_defaults(&library);
  jpeg_set_quality(&library, kind.quality, TRUE);
  if (kind.rgb) jpeg_set_colorspace(&library, JCS_RGB);
  if (!kind.cmyk) {
    for (int c = 0; c < kind.channels; ++c) {
      library.comp_info[c].h_samp_factor = kind.across[c];
      library.comp_info[c].v_samp_factor = kind.down[c];
    }
  }
  library.restart_interval = static_cast<unsigned>(kind.restart_interval);
  library.arith_code = kind.arithmetic ? TRUE : FALSE;
  if (kind.progressive) jpeg_simple_progression(&library);
}

// Empty: those that libjpeg-turbo chooses.
inline std::vector<jpeg_scan_info> scans_of(const JpegKind& kind, int channels) {
  std::vector<jpeg_scan_info> scans;
  const auto scan = [&](int channel, int begin, int end) {
    scans.push_back({1, {channel}, begin, end, 0, 0});
  };
  for (int c = 0; c < channels && kind.separate_scans; ++c) scan(c, 0, 63);
  for (int c = 0; c < channels && kind.single_scans > 0; ++c) {
    for (int k = 0; k < kind.single_scans; ++k) scan(c, k, k);
    scan(c, kind.single_scans, 63);
  }
  return scans;
}

inline Bytes some_jpeg(const JpegKind& kind, std::int64_t height, std::int64_t width,
                       std::uint32_t seed = 1) {
  const int channels = kind.cmyk ? 4 : kind.channels;
  Bytes pixels = scene(height, width, channels, seed);
  jpeg_compress_struct library{};
  jpeg_error_mgr errors{};
  library.err = jpeg_std_error(&errors);
  jpeg_create_compress(&library);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&library, &memory, &bytes);
  library.image_height = static_cast<JDIMENSION>(height);
  library.image_width = static_cast<JDIMENSION>(width);
  library.input_components = channels;
  library.in_color_space = kind.cmyk ? JCS_CMYK : channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  set_kind(library, kind);
  const std::vector<jpeg_scan_info> scans = scans_of(kind, channels);
  if (!scans.empty()) {
    library.scan_info = scans.data();
    library.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&library, TRUE);
  while (library.next_scanline < library.image_height) {
    JSAMPROW row = pixels.data() + static_cast<std::size_t>(library.next_scanline) *
                                       static_cast<std::size_t>(width * channels);
    jpeg_write_scanlines(&library, &row, 1);
  }
  jpeg_finish_compress(&library);
  jpeg_destroy_compress(&library);
  Bytes file(memory, memory + bytes);
  std::free(memory);
  return file;
}

inline Bytes decode_window(JpegDecoder& decoder, std::span<const std::uint8_t> file,
                           const Window& window, std::int64_t channels, JpegRoute route,
                           JpegRoute* taken = nullptr) {
  Bytes pixels(static_cast<std::size_t>(window.height * window.width * channels), 0xa5);
  const JpegRoute used = decoder.decode(file, "a.jpg", window, channels, pixels, route);
  if (taken != nullptr) *taken = used;
  return pixels;
}

inline Bytes decode_whole(JpegDecoder& decoder, std::span<const std::uint8_t> file,
                          std::int64_t channels) {
  const Shape shape = jpeg_shape(file, "a.jpg");
  return decode_window(decoder, file, {0, 0, shape[0], shape[1]}, channels, JpegRoute::full);
}

inline Bytes window_of(const Bytes& image, std::int64_t width, std::int64_t channels,
                       const Window& window) {
  Bytes pixels;
  for (std::int64_t y = window.y; y < window.y + window.height; ++y) {
    const auto begin = image.begin() + (y * width + window.x) * channels;
    pixels.insert(pixels.end(), begin, begin + window.width * channels);
  }
  return pixels;
}

// A window by (seed, round): any, at an edge or corner, or a single pixel.
inline Window some_window(std::int64_t height, std::int64_t width, std::uint32_t round) {
  const auto r = draw(5, Purpose::synthetic, 2, round);
  const auto s = draw(5, Purpose::synthetic, 3, round);
  const auto pick = [](std::uint32_t word, std::int64_t n) {
    return static_cast<std::int64_t>(below(word, static_cast<std::uint32_t>(n)));
  };
  Window window;
  window.height = 1 + pick(r[0], round % 3 == 0 ? std::min<std::int64_t>(height, 20) : height);
  window.width = 1 + pick(r[1], round % 3 == 0 ? std::min<std::int64_t>(width, 20) : width);
  window.y = pick(r[2], height - window.height + 1);
  window.x = pick(r[3], width - window.width + 1);
  if (s[0] % 8 == 0) window.y = 0;
  if (s[0] % 8 == 1) window.y = height - window.height;
  if (s[1] % 8 == 0) window.x = 0;
  if (s[1] % 8 == 1) window.x = width - window.width;
  return window;
}

struct Seed {
  const char* name;
  Bytes file;
  std::int64_t height, width;
};

// A file of each kind whose damage is of interest.
inline std::vector<Seed> seeds() {
  const JpegKind full_chroma{.across = {1, 1, 1}, .down = {1, 1, 1}};
  const JpegKind gray{.channels = 1, .across = {1}, .down = {1}};
  return {{"plain", some_jpeg({}, 70, 90), 70, 90},
          {"seekable", make_seekable(some_jpeg({}, 70, 150), "a.jpg"), 70, 150},
          {"seekable 4:4:4", make_seekable(some_jpeg(full_chroma, 40, 80), "a.jpg"), 40, 80},
          {"seekable gray", make_seekable(some_jpeg(gray, 64, 80), "a.jpg"), 64, 80},
          {"each MCU", some_jpeg({.restart_interval = 1}, 50, 60), 50, 60},
          {"progressive", some_jpeg({.progressive = true}, 50, 60), 50, 60},
          {"separate scans", some_jpeg({.separate_scans = true}, 50, 60), 50, 60}};
}

inline constexpr JpegRoute routes[] = {JpegRoute::full, JpegRoute::partial, JpegRoute::seek,
                                       JpegRoute::automatic};

// Nothing, and why in `message`, when the file is refused.
inline std::optional<Bytes> pixels_of(JpegDecoder& decoder, std::span<const std::uint8_t> file,
                                      const Window& window, JpegRoute route,
                                      std::string* message = nullptr) {
  try {
    return decode_window(decoder, file, window, 3, route);
  } catch (const DataError& error) {
    if (message != nullptr) *message = error.what();
    return std::nullopt;
  }
}

// The result of decoding arbitrary bytes by all routes.
struct Verdict {
  std::string disagreement;  // empty, or which guarantee about routes and files is broken
  bool refused = false;      // by a decoder of the whole file
  int equal = 0;             // windows with the pixels of the whole image
  int sought = 0;            // of these, decoded by restart intervals
  bool made_seekable = false;
};

// Compares some windows by every route with the whole image, and a reused decoder with a new one.
// (A window may be decoded although the whole file is refused: the damage can be elsewhere.)
inline void compare_routes(JpegDecoder& used, std::span<const std::uint8_t> file,
                           std::uint32_t salt, Verdict& verdict) {
  const Shape shape = jpeg_shape(file, "a.jpg");
  const Window all{0, 0, shape[0], shape[1]};
  std::string message;
  std::string fresh_message;
  JpegDecoder fresh;
  const auto whole = pixels_of(used, file, all, JpegRoute::full, &message);
  if (pixels_of(fresh, file, all, JpegRoute::full, &fresh_message) != whole ||
      message != fresh_message)
    verdict.disagreement = "the result depends on the files that were decoded before";
  verdict.refused = !whole;
  const bool seekable = jpeg_traits(file, "a.jpg").seekable;
  for (std::uint32_t w = 0; w < 3; ++w) {
    const Window window = some_window(shape[0], shape[1], salt * 3 + w);
    for (const JpegRoute route : routes) {
      const auto got = pixels_of(used, file, window, route);
      if (!got || !whole) continue;
      ++verdict.equal;
      verdict.sought += seekable && route == JpegRoute::seek ? 1 : 0;
      if (*got != window_of(*whole, shape[1], 3, window))
        verdict.disagreement = "route " + std::to_string(static_cast<int>(route)) +
                               " gives other pixels than the whole file";
    }
  }
}

inline Verdict verdict_on(JpegDecoder& used, std::span<const std::uint8_t> file,
                          std::uint32_t salt) {
  Verdict verdict;
  try {
    compare_routes(used, file, salt, verdict);
    if (!jpeg_traits(file, "a.jpg").baseline) return verdict;
    const Bytes seekable = make_seekable(file, "a.jpg");
    verdict.made_seekable = true;
    if (!jpeg_traits(seekable, "a.jpg").seekable ||
        decode_whole(used, seekable, 3) != decode_whole(used, file, 3))
      verdict.disagreement = "the seekable file holds another image, or is not seekable";
  } catch (const DataError&) {
    verdict.refused = true;
  }
  return verdict;
}

}  // namespace warpstep::data::testing
