#include "data/png_filter.h"

#include <bit>
#include <cstdlib>
#include <cstring>

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

static_assert(std::endian::native == std::endian::little, "the first channel is the low byte");

// The compiler's portable vectors: SSE2 on every x86-64, NEON on ARM.
using Bytes8 = std::uint8_t __attribute__((vector_size(8)));
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Words8 = std::int16_t __attribute__((vector_size(16)));
using Longs2 = std::int64_t __attribute__((vector_size(16)));
using Ints4 = std::int32_t __attribute__((vector_size(16)));

// All channels of a pixel at once. Loads are of 4 bytes: behind `from` there is slack, behind `up`
// comes `to` or slack. Stores are of `pixel` bytes.
template <std::size_t pixel>
struct Wide {
  static Bytes16 load(const Byte* p) {
    std::int32_t word = 0;
    std::memcpy(&word, p, 4);
    return reinterpret_cast<Bytes16>(Ints4{word, 0, 0, 0});
  }
  static void store(Byte* p, Bytes16 value) {
    const std::int32_t word = reinterpret_cast<Ints4>(value)[0];
    std::memcpy(p, &word, pixel);
  }
  static void sub(const Byte* from, Byte* to, std::size_t bytes) {
    Bytes16 a{};
    for (std::size_t i = 0; i < bytes; i += pixel) {
      a += load(from + i);
      store(to + i, a);
    }
  }
  static void average(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    Bytes16 a{};
    for (std::size_t i = 0; i < bytes; i += pixel) {
      const Bytes16 b = load(up + i);
      a = load(from + i) + (a & b) + ((a ^ b) >> 1);  // (a + b) / 2 without a ninth bit
      store(to + i, a);
    }
  }
  // Of 16 bits a channel, so that differences fit.
  static Words8 load_words(const Byte* p) {
    Bytes8 channels{};
    std::memcpy(&channels, p, 4);
    return __builtin_convertvector(channels, Words8);
  }
  static void store_words(Byte* p, Words8 value) {  // each 0 to 255
    const auto words = static_cast<std::uint64_t>(reinterpret_cast<Longs2>(value)[0]);
    const std::uint64_t pairs = words | words >> 8;
    const auto word = static_cast<std::uint32_t>((pairs & 0xffff) | (pairs >> 16 & 0xffff0000));
    std::memcpy(p, &word, pixel);
  }
  static Words8 larger(Words8 x, Words8 y) { return x > y ? x : y; }
  static Words8 magnitude(Words8 x) { return larger(x, -x); }
  static void paeth_row(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    Words8 a{}, c{};
    for (std::size_t i = 0; i < bytes; i += pixel) {
      const Words8 b = load_words(up + i);
      const Words8 by_a = magnitude(b - c);
      const Words8 by_b = magnitude(a - c);
      const Words8 by_c = magnitude((b - c) + (a - c));
      const Words8 b_or_c = by_b <= by_c ? b : c;
      const Words8 nearest = ((by_a <= by_b) & (by_a <= by_c)) != 0 ? a : b_or_c;
      a = (load_words(from + i) + nearest) & 0xff;
      c = b;
      store_words(to + i, a);
    }
  }
};

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
