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
