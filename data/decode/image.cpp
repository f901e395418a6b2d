#include "data/decode/image.h"

#include <algorithm>

namespace warpstep::data {
namespace {

bool ends_with(std::string_view name, std::string_view ending) {
  return name.size() >= ending.size() &&
         std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

}  // namespace

Window intersection(const Window& a, const Window& b) {
  const auto down = [&](std::int64_t y) { return std::clamp(y, b.y, b.y + b.height); };
  const auto across = [&](std::int64_t x) { return std::clamp(x, b.x, b.x + b.width); };
  const std::int64_t y = down(a.y), x = across(a.x);
  return {y, x, down(a.y + a.height) - y, across(a.x + a.width) - x};
}

bool has_png_name(std::string_view name) {
  return ends_with(name, ".png");
}

bool has_jpeg_name(std::string_view name) {
  return ends_with(name, ".jpg") || ends_with(name, ".jpeg");
}

Encoding encoding_of(std::span<const std::uint8_t> bytes, std::string_view name) {
  if (bytes.size() >= 2 && bytes[0] == 0x89 && bytes[1] == 'P') return Encoding::png;
  if (bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8) return Encoding::jpeg;
  return has_jpeg_name(name) ? Encoding::jpeg : Encoding::png;
}

}  // namespace warpstep::data
