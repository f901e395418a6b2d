// PNG files built and repaired chunk by chunk, without libpng: for tests of files that it never
// writes.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace warpstep::fuzz {

using Bytes = std::vector<std::uint8_t>;

inline void append_word(Bytes& to, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to.push_back(static_cast<std::uint8_t>(word >> shift));
}
inline std::uint32_t word_at(std::span<const std::uint8_t> from, std::size_t at) {
  return std::uint32_t{from[at]} << 24 | std::uint32_t{from[at + 1]} << 16 |
         std::uint32_t{from[at + 2]} << 8 | from[at + 3];
}

struct PngChunk {
  std::string name;  // 4 bytes
  Bytes data;
};

inline constexpr std::uint8_t png_signature[8]{0x89, 'P', 'N', 'G', 13, 10, 26, 10};

// The file of these chunks, with lengths and CRCs that fit.
inline Bytes png_file(const std::vector<PngChunk>& chunks) {
  Bytes file(std::begin(png_signature), std::end(png_signature));
  for (const PngChunk& chunk : chunks) {
    append_word(file, static_cast<std::uint32_t>(chunk.data.size()));
    const std::size_t begin = file.size();
    file.insert(file.end(), chunk.name.begin(), chunk.name.end());
    file.insert(file.end(), chunk.data.begin(), chunk.data.end());
    append_word(file, static_cast<std::uint32_t>(
                          crc32(0, &file[begin], static_cast<unsigned>(file.size() - begin))));
  }
  return file;
}

// The chunks that are complete in the file, whatever their CRCs.
inline std::vector<PngChunk> png_chunks(std::span<const std::uint8_t> file) {
  std::vector<PngChunk> chunks;
  for (std::size_t at = 8; at + 12 <= file.size();) {
    const std::size_t bytes = word_at(file, at);
    if (bytes > file.size() - at - 12) break;
    const auto name = file.subspan(at + 4, 4);
    const auto data = file.subspan(at + 8, bytes);
    chunks.push_back({std::string(name.begin(), name.end()), Bytes(data.begin(), data.end())});
    at += 12 + bytes;
  }
  return chunks;
}

inline PngChunk png_header(std::uint32_t width, std::uint32_t height, int depth, int colour,
                           int interlace = 0) {
  PngChunk chunk{"IHDR", {}};
  append_word(chunk.data, width);
  append_word(chunk.data, height);
  for (const int byte : {depth, colour, 0, 0, interlace})
    chunk.data.push_back(static_cast<std::uint8_t>(byte));
  return chunk;
}

inline Bytes deflated(const Bytes& raw, int level = 6, int window_bits = 15) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, raw.size()) + 64);
  stream.next_in = const_cast<Bytef*>(raw.data());
  stream.avail_in = static_cast<uInt>(raw.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The result of inflating the bytes of all IDAT chunks.
struct Inflated {
  int code = Z_OK;      // zlib's
  std::string message;  // zlib's
  std::size_t used = 0;
  std::uint32_t adler = 1;
};

// `window_bits` as inflateInit2() has them: 15 with zlib's header, -15 without.
inline Inflated inflated(std::span<const std::uint8_t> from, int window_bits) {
  constexpr std::size_t most_bytes = 1 << 22;
  std::array<std::uint8_t, 1 << 14> out;
  z_stream stream{};
  inflateInit2(&stream, window_bits);
  stream.next_in = const_cast<Bytef*>(from.data());
  stream.avail_in = static_cast<uInt>(from.size());
  Inflated result;
  do {
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    result.code = inflate(&stream, Z_NO_FLUSH);
    const auto got = static_cast<uInt>(out.size() - stream.avail_out);
    result.adler = static_cast<std::uint32_t>(adler32(result.adler, out.data(), got));
  } while (result.code == Z_OK && stream.avail_out == 0 && stream.total_out < most_bytes);
  if (stream.msg != nullptr) result.message = stream.msg;
  result.used = stream.total_in;
  inflateEnd(&stream);
  return result;
}

inline Bytes png_stream(const std::vector<PngChunk>& chunks) {
  Bytes stream;
  for (const PngChunk& chunk : chunks)
    if (chunk.name == "IDAT") stream.insert(stream.end(), chunk.data.begin(), chunk.data.end());
  return stream;
}

// The same chunks with every checksum correct, so that damage gets past them: zlib's header check,
// the Adler sum of the inflatable data, the CRCs. Bytes after the last complete chunk are kept.
inline Bytes with_right_checksums(std::span<const std::uint8_t> file) {
  if (file.size() < 8) return Bytes(file.begin(), file.end());
  std::vector<PngChunk> chunks = png_chunks(file);
  Bytes stream = png_stream(chunks);
  if (stream.size() >= 6) {
    stream[1] &= 0xe0;
    stream[1] =
        static_cast<std::uint8_t>(stream[1] + (31 - (stream[0] * 256 + stream[1]) % 31) % 31);
    const Inflated body = inflated(std::span(stream).subspan(2), -15);
    if (body.code == Z_STREAM_END && body.used + 6 <= stream.size()) {
      Bytes sum;
      append_word(sum, body.adler);
      std::copy(sum.begin(), sum.end(),
                stream.begin() + static_cast<std::ptrdiff_t>(2 + body.used));
    }
  }
  std::size_t whole = 8, at = 0;
  for (PngChunk& chunk : chunks) {
    whole += 12 + chunk.data.size();
    if (chunk.name != "IDAT") continue;
    for (std::uint8_t& byte : chunk.data) byte = stream[at++];
  }
  Bytes mended = png_file(chunks);
  mended.insert(mended.end(), file.begin() + static_cast<std::ptrdiff_t>(whole), file.end());
  std::copy_n(file.begin(), 8, mended.begin());
  return mended;
}

// The file with the chunks that begin at its chunk names, whatever its lengths say, and every
// checksum correct: bytes inserted into a chunk or removed from it change only that chunk.
inline Bytes reframed(std::span<const std::uint8_t> file) {
  std::vector<std::size_t> names;
  for (std::size_t at = 12; at + 8 <= file.size(); ++at)
    for (const char* name : {"IHDR", "PLTE", "IDAT", "IEND", "tRNS", "tEXt"})
      if (std::equal(name, name + 4, file.begin() + static_cast<std::ptrdiff_t>(at)))
        names.push_back(at);
  std::vector<PngChunk> chunks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t begin = names[i] + 4;
    const std::size_t end = i + 1 < names.size() ? names[i + 1] - 8 : file.size() - 4;
    const auto name = file.subspan(names[i], 4);
    const auto data = file.subspan(begin, std::max(begin, end) - begin);
    chunks.push_back({std::string(name.begin(), name.end()), Bytes(data.begin(), data.end())});
  }
  return with_right_checksums(png_file(chunks));
}

// An image to be written as raw rows under chosen filters. The content is noise over a gradient.
struct PngSpec {
  std::uint32_t width = 5;
  std::uint32_t height = 4;
  int depth = 8;
  int colour = 2;
  int filter = -1;  // 0 to 4; negative: another one for each row
  int idats = 1;    // the number of chunks that the data is cut into
  std::uint32_t salt = 0;
  int window_bits = 15;

  std::size_t row_bytes() const {
    const unsigned samples[7]{1, 0, 3, 1, 2, 0, 4};
    return (std::size_t{width} * samples[colour] * static_cast<unsigned>(depth) + 7) / 8;
  }
  // Any bytes are a valid filtered row, so filtered rows are drawn: every filter sees wide ranges.
  Bytes raw() const {
    Bytes rows;
    for (std::uint32_t y = 0; y < height; ++y) {
      rows.push_back(
          static_cast<std::uint8_t>(filter < 0 ? static_cast<int>((y + salt) % 5) : filter));
      for (std::size_t x = 0; x < row_bytes(); ++x)
        rows.push_back(static_cast<std::uint8_t>(((x + salt) * 2654435761U + y * 40503U) >>
                                                 (x % 3 == 0 ? 25 : 21)));
    }
    return rows;
  }
  std::vector<PngChunk> chunks() const {
    std::vector<PngChunk> all{png_header(width, height, depth, colour)};
    if (colour == 3) {
      all.push_back({"PLTE", {}});
      for (int i = 0; i < 3 << depth; ++i)
        all.back().data.push_back(static_cast<std::uint8_t>(i * 7 + 1));
    }
    const Bytes stream = deflated(raw(), 6, window_bits);
    const auto pieces = static_cast<std::size_t>(idats);
    for (std::size_t i = 0; i < pieces; ++i) {
      const auto cut = [&](std::size_t k) {
        return stream.begin() + static_cast<std::ptrdiff_t>(stream.size() * k / pieces);
      };
      all.push_back({"IDAT", Bytes(cut(i), cut(i + 1))});
    }
    all.push_back({"IEND", {}});
    return all;
  }
  Bytes file() const { return png_file(chunks()); }
};

}  // namespace warpstep::fuzz
