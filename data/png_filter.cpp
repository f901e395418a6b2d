#include "data/png_filter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace warpstep::data {
namespace {

using Byte = std::uint8_t;

// One row: `from` filtered, `up` the row above, `to` the result; `bytes` a multiple of the pixel.
// The filters name a (left), b (above) and c (above left) as the format does.

void undo_up(const Byte* from, const Byte* __restrict up, Byte* __restrict to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<Byte>(from[i] + up[i]);
}

int paeth(int a, int b, int c) {
  const int by_a = std::abs(b - c);
  const int by_b = std::abs(a - c);
  const int by_c = std::abs(a + b - 2 * c);
  if (by_a <= by_b && by_a <= by_c) return a;
  return by_b <= by_c ? b : c;
}

template <std::size_t pixel>
struct Plain {
  static void sub(const Byte* from, Byte* to, std::size_t bytes) {
    std::memcpy(to, from, pixel);
    for (std::size_t i = pixel; i < bytes; ++i) to[i] = static_cast<Byte>(from[i] + to[i - pixel]);
  }
  static void average(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    for (std::size_t i = 0; i < pixel; ++i) to[i] = static_cast<Byte>(from[i] + up[i] / 2);
    for (std::size_t i = pixel; i < bytes; ++i)
      to[i] = static_cast<Byte>(from[i] + (to[i - pixel] + up[i]) / 2);
  }
  static void paeth_row(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    for (std::size_t i = 0; i < pixel; ++i) to[i] = static_cast<Byte>(from[i] + up[i]);
    for (std::size_t i = pixel; i < bytes; ++i)
      to[i] = static_cast<Byte>(from[i] + paeth(to[i - pixel], up[i], up[i - pixel]));
  }
};

#ifdef __SSE2__
// All channels of a pixel at once. Loads are of 4 bytes: behind `from` there is slack, behind `up`
// comes `to` or slack. Stores are of `pixel` bytes.
template <std::size_t pixel>
struct Wide {
  static __m128i load(const Byte* p) {
    int word = 0;
    std::memcpy(&word, p, 4);
    return _mm_cvtsi32_si128(word);
  }
  static void store(Byte* p, __m128i value) {
    const int word = _mm_cvtsi128_si32(value);
    std::memcpy(p, &word, pixel);
  }
  static void sub(const Byte* from, Byte* to, std::size_t bytes) {
    __m128i a = _mm_setzero_si128();
    for (std::size_t i = 0; i < bytes; i += pixel) {
      a = _mm_add_epi8(a, load(from + i));
      store(to + i, a);
    }
  }
  static void average(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    const __m128i one = _mm_set1_epi8(1);
    __m128i a = _mm_setzero_si128();
    for (std::size_t i = 0; i < bytes; i += pixel) {
      const __m128i b = load(up + i);
      // _mm_avg_epu8 rounds up, the filter rounds down: 1 less where the sum is odd.
      const __m128i odd = _mm_and_si128(_mm_xor_si128(a, b), one);
      a = _mm_add_epi8(load(from + i), _mm_sub_epi8(_mm_avg_epu8(a, b), odd));
      store(to + i, a);
    }
  }
  static __m128i magnitude(__m128i x) {
    return _mm_max_epi16(x, _mm_sub_epi16(_mm_setzero_si128(), x));
  }
  static __m128i choose(__m128i mask, __m128i yes, __m128i no) {
    return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
  }
  static void paeth_row(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    const __m128i zero = _mm_setzero_si128();
    __m128i a = zero, c = zero;  // of 16 bits a channel, so that differences fit
    for (std::size_t i = 0; i < bytes; i += pixel) {
      const __m128i b = _mm_unpacklo_epi8(load(up + i), zero);
      const __m128i from_c_to_b = _mm_sub_epi16(b, c);
      const __m128i from_c_to_a = _mm_sub_epi16(a, c);
      const __m128i by_a = magnitude(from_c_to_b);
      const __m128i by_b = magnitude(from_c_to_a);
      const __m128i by_c = magnitude(_mm_add_epi16(from_c_to_b, from_c_to_a));
      const __m128i least = _mm_min_epi16(by_c, _mm_min_epi16(by_a, by_b));
      const __m128i b_or_c = choose(_mm_cmpeq_epi16(least, by_b), b, c);
      const __m128i nearest = choose(_mm_cmpeq_epi16(least, by_a), a, b_or_c);
      // The high byte of each channel stays 0: bytes are added, not words.
      a = _mm_add_epi8(_mm_unpacklo_epi8(load(from + i), zero), nearest);
      c = b;
      store(to + i, _mm_packus_epi16(a, a));
    }
  }
};
#else
template <std::size_t pixel>
using Wide = Plain<pixel>;
#endif

template <class Rows>
bool undo(const Byte* filtered, std::size_t height, std::size_t row_bytes, const Byte* zeros,
          Byte* pixels) {
  const Byte* up = zeros;
  for (std::size_t y = 0; y < height; ++y) {
    const Byte filter = *filtered++;
    switch (filter) {
      case 0: std::memcpy(pixels, filtered, row_bytes); break;
      case 1: Rows::sub(filtered, pixels, row_bytes); break;
      case 2: undo_up(filtered, up, pixels, row_bytes); break;
      case 3: Rows::average(filtered, up, pixels, row_bytes); break;
      case 4: Rows::paeth_row(filtered, up, pixels, row_bytes); break;
      default: return false;
    }
    up = pixels;
    filtered += row_bytes;
    pixels += row_bytes;
  }
  return true;
}

}  // namespace

bool undo_png_filters(const std::uint8_t* filtered, std::size_t height, std::size_t row_bytes,
                      std::size_t pixel_bytes, std::vector<std::uint8_t>& zeros,
                      std::uint8_t* pixels) {
  const std::size_t needed = row_bytes + png_filter_slack_bytes;
  if (zeros.size() < needed) zeros.resize(needed);
  switch (pixel_bytes) {
    case 1: return undo<Plain<1>>(filtered, height, row_bytes, zeros.data(), pixels);
    case 2: return undo<Plain<2>>(filtered, height, row_bytes, zeros.data(), pixels);
    case 3: return undo<Wide<3>>(filtered, height, row_bytes, zeros.data(), pixels);
    case 4: return undo<Wide<4>>(filtered, height, row_bytes, zeros.data(), pixels);
    default: return false;
  }
}

}  // namespace warpstep::data
