// JPEG files of every kind for the tests of the decoder, written by libjpeg-turbo itself.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <jpeglib.h>

#include "data/jpeg.h"
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
  bool separate_scans = false;  // a sequential scan for each component
  bool rgb = false;             // stored without a colour transform
  bool arithmetic = false;
  bool cmyk = false;
  int quality = 80;
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
  jpeg_scan_info scans[3]{};
  if (kind.separate_scans) {
    for (int c = 0; c < channels; ++c) {
      scans[c].comps_in_scan = 1;
      scans[c].component_index[0] = c;
      scans[c].Se = 63;
    }
    library.scan_info = scans;
    library.num_scans = channels;
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

inline Bytes decode_window(JpegDecoder& decoder, const Bytes& file, const Window& window,
                           std::int64_t channels, JpegRoute route, JpegRoute* taken = nullptr) {
  Bytes pixels(static_cast<std::size_t>(window.height * window.width * channels), 0xa5);
  const JpegRoute used = decoder.decode(file, "a.jpg", window, channels, pixels, route);
  if (taken != nullptr) *taken = used;
  return pixels;
}

inline Bytes decode_whole(JpegDecoder& decoder, const Bytes& file, std::int64_t channels) {
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

}  // namespace warpstep::data::testing
