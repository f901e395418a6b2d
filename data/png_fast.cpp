#include "data/png_fast.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "data/image.h"
#include "data/png_filter.h"

namespace warpstep::data {
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

// The chunks one after the other; nothing when one does not lie in the file or has a wrong CRC.
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

// Bytes of a pixel in the file; 0 for the kinds of file that are left to libpng.
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

// Pixels of 1, 2 or 4 bytes to gray or RGB: alpha is dropped, gray repeated.
void convert(Bytes from, std::size_t from_bytes, std::size_t channels, std::uint8_t* to) {
  const std::size_t step = from_bytes == 4 ? 1 : 0;  // from a channel to the next
  for (std::size_t i = 0; i < from.size(); i += from_bytes)
    for (std::size_t c = 0; c < channels; ++c) *to++ = from[i + c * step];
}

// Whether zlib takes the stream's header and the window that it promises. Distances reach no
// further back than the data's begin, so a window of all data is as good as the largest.
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

  // The zlib stream of all IDAT chunks; empty when the file is not to be read here.
  Bytes gather(Chunks& chunks, std::size_t raw_bytes);
  bool inflate(Bytes stream, std::size_t raw_bytes);

  std::unique_ptr<libdeflate_decompressor, Free> decompressor;
  std::vector<std::uint8_t> idat;    // of a file with several IDAT chunks
  std::vector<std::uint8_t> raw;     // filtered rows
  std::vector<std::uint8_t> pixels;  // of a file whose pixels are not the wanted ones yet
  std::vector<std::uint8_t> zeros;
};

Bytes PngFastReader::Impl::gather(Chunks& chunks, std::size_t raw_bytes) {
  Bytes first;
  int count = 0;
  bool ended = false;  // another chunk came behind the IDATs: no more may follow
  while (true) {
    const std::optional<Chunk> chunk = chunks.next();
    if (!chunk) return {};
    if (chunk->name == tag("IDAT")) {
      // libpng takes an IDAT of the image's size at least, or of its general limit.
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
