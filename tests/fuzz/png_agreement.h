// The property that every file must have, however broken: if the fast PNG reader accepts it, libpng
// accepts it with the same pixels.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "data/decode/png.h"
#include "data/decode/png_fast.h"
#include "engine/core/error.h"
#include "tests/fuzz/png_parts.h"

namespace warpstep::fuzz {

// Whether zlib finds the deflate data to use codes that its block leaves undefined: libdeflate
// reads them as their neighbours, which the fast reader's contract allows for.
inline bool uses_undefined_codes(std::span<const std::uint8_t> file) {
  const Inflated result = inflated(png_stream(png_chunks(file)), 15);
  if (result.code != Z_DATA_ERROR) return false;
  for (const char* message : {"invalid distance code", "invalid literal/length code",
                              "too many length or distance symbols"})
    if (result.message == message) return true;
  return false;
}

inline std::optional<Bytes> by_libpng(std::span<const std::uint8_t> file, const Shape& shape) {
  Bytes pixels(idx(shape.count()));
  try {
    data::decode_png(file, "input", shape, pixels);
    return pixels;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

inline std::optional<Bytes> by_fast_reader(std::span<const std::uint8_t> file, const Shape& shape) {
  static data::PngFastReader reader;
  Bytes pixels(idx(shape.count()));
  if (!reader.decode(file, shape, pixels)) return std::nullopt;
  return pixels;
}

// Empty when both agree, else the difference.
inline std::string png_disagreement(std::span<const std::uint8_t> file) {
  constexpr std::int64_t most_pixels = 1 << 18;
  if (file.size() < 26) return {};
  const std::int64_t width = word_at(file, 16);
  const std::int64_t height = word_at(file, 20);
  if (width < 1 || height < 1 || width > most_pixels || height > most_pixels / width) return {};
  for (const std::int64_t channels : {1, 3}) {
    const Shape shape{height, width, channels};
    const auto fast = by_fast_reader(file, shape);
    const auto slow = by_libpng(file, shape);
    if (!fast || fast == slow || (!slow && uses_undefined_codes(file))) continue;
    return fmt::format("as {}: the fast reader takes a file that libpng {}", shape.text(),
                       slow ? "gives other pixels for" : "refuses");
  }
  return {};
}

}  // namespace warpstep::fuzz
