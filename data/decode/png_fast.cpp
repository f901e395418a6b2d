#include "data/decode/png_fast.h"

#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "data/decode/image.h"

namespace warpstep::data {
namespace {

using Byte = std::uint8_t;

// Filters of one row: `from` is filtered, `up` the row above, `to` the result, `bytes` a multiple
// of the pixel's. a (left), b (above) and c (above left) are the format's names.

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
  static void paeth_two_rows(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    paeth_row(from, up, to, bytes);
    paeth_row(from + bytes + 1, to, to + bytes, bytes);
  }
};

static_assert(std::endian::native == std::endian::little, "the first channel is the low byte");

// The compiler's portable vectors: SSE2 on every x86-64, NEON on ARM.
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Words8 = std::int16_t __attribute__((vector_size(16)));
using Longs2 = std::int64_t __attribute__((vector_size(16)));
using ULongs2 = std::uint64_t __attribute__((vector_size(16)));
using Ints4 = std::int32_t __attribute__((vector_size(16)));

// All channels of a pixel at once. Loads are of 4 bytes: after `from` there is slack, after `up`
// there is `to` or slack. Stores are of `pixel` bytes.
template <std::size_t pixel>
struct Wide {
  static Bytes16 load(const Byte* p) {
    std::int32_t word = 0;
    std::memcpy(&word, p, 4);
    return reinterpret_cast<Bytes16>(Ints4{word, 0, 0, 0});
  }
  static void store(Byte* p, Bytes16 value) {
    store_word(p, static_cast<std::uint32_t>(reinterpret_cast<Ints4>(value)[0]));
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
  // 16 bits per channel, so that differences fit.
  static Words8 load_words(const Byte* p) { return widened(load(p)); }
  static Words8 load_pair(const Byte* low, const Byte* high) {
    std::int32_t words[2];
    std::memcpy(words, low, 4);
    std::memcpy(words + 1, high, 4);
    return widened(reinterpret_cast<Bytes16>(Ints4{words[0], words[1], 0, 0}));
  }
  static Words8 widened(Bytes16 x) {  // its first eight
    return reinterpret_cast<Words8>(__builtin_shufflevector(x, Bytes16{}, 0, 16, 1, 17, 2, 18, 3,
                                                            19, 4, 20, 5, 21, 6, 22, 7, 23));
  }
  static void store_words(Byte* p, Words8 value) {  // each 0 to 255
    store_word(p, static_cast<std::uint32_t>(packed(value)[0]));
  }
  // In two stores: three bytes at once would go through memory.
  static void store_word(Byte* p, std::uint32_t word) {
    if constexpr (pixel == 3) {
      std::memcpy(p, &word, 2);
      p[2] = static_cast<Byte>(word >> 16);
    } else {
      std::memcpy(p, &word, pixel);
    }
  }
  // The low bytes of four words in 32 bits, for each half.
  static ULongs2 packed(Words8 value) {
    auto bytes = reinterpret_cast<ULongs2>(value);
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
    return bytes | bytes >> 16;
  }
  static Words8 larger(Words8 x, Words8 y) { return x > y ? x : y; }
  static Words8 smaller(Words8 x, Words8 y) { return x < y ? x : y; }
  static Words8 magnitude(Words8 x) { return larger(x, -x); }
  // `filtered` plus the one of a, b and c that is nearest to a + b - c. Each pixel depends on the
  // one before, so all sums are computed in parallel to the choice, which comes last.
  static Words8 paeth_sum(Words8 filtered, Words8 a, Words8 b, Words8 c) {
    const Words8 by_a = magnitude(b - c);
    const Words8 by_b = magnitude(a - c);
    const Words8 by_c = magnitude(a + (b - c - c));
    const Words8 if_a = (filtered + a) & 0xff;
    const Words8 if_not_a = by_b <= by_c ? (filtered + b) & 0xff : (filtered + c) & 0xff;
    return by_a <= smaller(by_b, by_c) ? if_a : if_not_a;
  }
  static void paeth_row(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    Words8 a{}, c{};
    for (std::size_t i = 0; i < bytes; i += pixel) {
      const Words8 b = load_words(up + i);
      a = paeth_sum(load_words(from + i), a, b, c);
      c = b;
      store_words(to + i, a);
    }
  }
  // Two rows at once, each in half of a register, the lower one a pixel late, so that the pixel
  // above it is complete. Takes half the time of two rows, because latency is the limit.
  static void paeth_two_rows(const Byte* from, const Byte* up, Byte* to, std::size_t bytes) {
    const Byte* lower_from = from + bytes + 1;  // after its filter byte
    Byte* lower_to = to + bytes;
    Words8 a{}, c{};
    const auto step = [&](Words8 filtered, Words8 above) {
      const Words8 b = halves(above, a);
      a = paeth_sum(filtered, a, b, c);
      c = b;
    };
    step(load_words(from), load_words(up));
    store_words(to, a);
    // The lower row starts with a pixel of zeros to its left, as the format requires.
    a = halves(a, Words8{});
    c = halves(c, Words8{});
    for (std::size_t i = pixel; i < bytes; i += pixel) {
      step(load_pair(from + i, lower_from + i - pixel), load_words(up + i));
      store_words(to + i, a);
      store_words(lower_to + i - pixel, swapped(a));
    }
    step(load_pair(from, lower_from + bytes - pixel), Words8{});
    store_words(lower_to + bytes - pixel, swapped(a));
  }
  static Words8 halves(Words8 low, Words8 high) {  // the low half of each
    return reinterpret_cast<Words8>(
        Longs2{reinterpret_cast<Longs2>(low)[0], reinterpret_cast<Longs2>(high)[0]});
  }
  static Words8 swapped(Words8 x) {
    const auto longs = reinterpret_cast<Longs2>(x);
    return reinterpret_cast<Words8>(Longs2{longs[1], longs[0]});
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
      case 4:
        if (y + 1 < height && filtered[row_bytes] == 4) {
          Rows::paeth_two_rows(filtered, up, pixels, row_bytes);
          ++y;
          filtered += row_bytes + 1;
          pixels += row_bytes;
        } else {
          Rows::paeth_row(filtered, up, pixels, row_bytes);
        }
        break;
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

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t frame_bytes = 12;             // of a chunk: length, name, CRC
constexpr std::size_t max_chunk_bytes = 8'000'000;  // libpng's limit for all but IDAT

constexpr std::uint32_t tag(const char (&name)[5]) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<std::uint8_t>(name[i]);
  return word;
}

struct Chunk {
  std::uint32_t name;
  Bytes data;
};

// Iterates over the chunks; empty for one that exceeds the file or has a wrong CRC.
class Chunks {
 public:
  explicit Chunks(Bytes rest) : rest_(rest) {}

  std::optional<Chunk> next() {
    if (rest_.size() < frame_bytes) return std::nullopt;
    const std::size_t bytes = big_endian(rest_.data());
    if (bytes > rest_.size() - frame_bytes) return std::nullopt;
    const std::uint32_t crc = libdeflate_crc32(0, rest_.data() + 4, bytes + 4);
    if (crc != big_endian(rest_.data() + 8 + bytes)) return std::nullopt;
    const Chunk chunk{big_endian(rest_.data() + 4), rest_.subspan(8, bytes)};
    rest_ = rest_.subspan(frame_bytes + bytes);
    return chunk;
  }

 private:
  Bytes rest_;
};

bool is_letter(std::uint32_t byte) {
  return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

// Whether every libpng skips the chunk: ancillary, four letters, the third (reserved) a capital.
bool is_skipped(const Chunk& chunk) {
  constexpr std::uint32_t lower_case = 0x20;
  for (int shift = 0; shift < 32; shift += 8)
    if (!is_letter(chunk.name >> shift & 0xff)) return false;
  return (chunk.name >> 24 & lower_case) != 0 && (chunk.name >> 8 & lower_case) == 0 &&
         chunk.data.size() <= max_chunk_bytes;
}

// Bytes per pixel in the file; 0 for the kinds of file that libpng decodes.
std::size_t pixel_bytes(const Chunk& header, const Shape& expected) {
  const std::uint8_t* p = header.data.data();
  if (header.name != tag("IHDR") || header.data.size() != 13) return 0;
  if (big_endian(p) != expected[1] || big_endian(p + 4) != expected[0]) return 0;
  const bool plain = p[8] == 8 && p[10] == 0 && p[11] == 0 && p[12] == 0;  // 8 bits, no interlace
  if (!plain || std::min(expected[0], expected[1]) < 1) return 0;
  if (std::max(expected[0], expected[1]) > max_image_side) return 0;
  const bool rgb = expected[2] == 3;
  if (!rgb && expected[2] != 1) return 0;
  switch (p[9]) {
    case 0: return 1;
    case 2: return rgb ? 3 : 0;
    case 4: return 2;
    case 6: return rgb ? 4 : 0;
    default: return 0;
  }
}

// Converts pixels of 1, 2 or 4 bytes to gray or RGB: drops alpha, repeats gray.
void convert(Bytes from, std::size_t from_bytes, std::size_t channels, std::uint8_t* to) {
  const std::size_t step = from_bytes == 4 ? 1 : 0;  // between channels
  for (std::size_t i = 0; i < from.size(); i += from_bytes)
    for (std::size_t c = 0; c < channels; ++c) *to++ = from[i + c * step];
}

// Whether zlib accepts the window size in the stream's header: the largest, or one that covers all
// data, which is equivalent because no distance reaches back before the data.
bool is_usual_zlib(Bytes stream, std::size_t raw_bytes) {
  if (stream.size() < 2) return false;
  const unsigned log_window = 8U + (stream[0] >> 4);
  return log_window == 15 || (log_window < 15 && raw_bytes <= std::size_t{1} << log_window);
}

}  // namespace

struct PngFastReader::Impl {
  struct Free {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };

  Impl() : decompressor(libdeflate_alloc_decompressor()) {
    if (!decompressor) throw std::bad_alloc();
  }

  // The zlib stream of all IDAT chunks; empty for files that libpng must decode.
  Bytes gather(Chunks& chunks, std::size_t raw_bytes);
  bool inflate(Bytes stream, std::size_t raw_bytes);

  std::unique_ptr<libdeflate_decompressor, Free> decompressor;
  std::vector<std::uint8_t> idat;    // of a file with several IDAT chunks
  std::vector<std::uint8_t> raw;     // filtered rows, with slack
  std::vector<std::uint8_t> pixels;  // before they are converted to the expected channels
  std::vector<std::uint8_t> zeros;
};

Bytes PngFastReader::Impl::gather(Chunks& chunks, std::size_t raw_bytes) {
  Bytes first;
  int count = 0;
  bool ended = false;  // another chunk followed the IDATs, so no more IDATs may follow
  while (true) {
    const std::optional<Chunk> chunk = chunks.next();
    if (!chunk) return {};
    if (chunk->name == tag("IDAT")) {
      // libpng accepts an IDAT up to the image's size or its general limit.
      if (ended || chunk->data.size() > std::max(raw_bytes, max_chunk_bytes)) return {};
      if (++count == 1) {
        first = chunk->data;
        continue;
      }
      if (count == 2) idat.assign(first.begin(), first.end());
      idat.insert(idat.end(), chunk->data.begin(), chunk->data.end());
    } else if (chunk->name == tag("IEND")) {
      if (!chunk->data.empty()) return {};
      return count <= 1 ? first : Bytes(idat);
    } else {
      if (!is_skipped(*chunk)) return {};
      ended = count > 0;
    }
  }
}

bool PngFastReader::Impl::inflate(Bytes stream, std::size_t raw_bytes) {
  if (!is_usual_zlib(stream, raw_bytes) || raw_bytes / max_deflate_expansion > stream.size())
    return false;
  if (raw.size() < raw_bytes + png_filter_slack_bytes)
    raw.resize(raw_bytes + png_filter_slack_bytes);
  std::size_t used = 0;
  const libdeflate_result result = libdeflate_zlib_decompress_ex(
      decompressor.get(), stream.data(), stream.size(), raw.data(), raw_bytes, &used, nullptr);
  return result == LIBDEFLATE_SUCCESS && used == stream.size();
}

PngFastReader::PngFastReader() : impl_(std::make_unique<Impl>()) {}
PngFastReader::~PngFastReader() = default;
PngFastReader::PngFastReader(PngFastReader&&) noexcept = default;
PngFastReader& PngFastReader::operator=(PngFastReader&&) noexcept = default;

bool PngFastReader::decode(std::span<const std::uint8_t> file, const Shape& expected,
                           std::span<std::uint8_t> pixels) {
  static constexpr std::uint8_t signature[8]{0x89, 'P', 'N', 'G', 13, 10, 26, 10};
  if (file.size() < sizeof signature || std::memcmp(file.data(), signature, sizeof signature) != 0)
    return false;
  Chunks chunks(file.subspan(sizeof signature));
  const std::optional<Chunk> header = chunks.next();
  if (!header || expected.rank() != 3) return false;
  const std::size_t pixel = pixel_bytes(*header, expected);
  if (pixel == 0 || pixels.size() != idx(expected.count())) return false;
  const std::size_t height = idx(expected[0]);
  const std::size_t row_bytes = idx(expected[1]) * pixel;
  const std::size_t raw_bytes = height * (1 + row_bytes);
  Impl& my = *impl_;
  if (!my.inflate(my.gather(chunks, raw_bytes), raw_bytes)) return false;
  const std::size_t channels = idx(expected[2]);
  std::uint8_t* to = pixels.data();
  if (pixel != channels) {
    my.pixels.resize(height * row_bytes);
    to = my.pixels.data();
  }
  if (!undo_png_filters(my.raw.data(), height, row_bytes, pixel, my.zeros, to)) return false;
  if (pixel != channels) convert(my.pixels, pixel, channels, pixels.data());
  return true;
}

}  // namespace warpstep::data
