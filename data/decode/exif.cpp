#include "data/decode/exif.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "data/decode/jpeg.h"
#include "engine/core/types.h"

namespace warpstep::data {
namespace {

constexpr std::uint8_t app1 = 0xe1;
constexpr std::string_view exif_name("Exif\0\0", 6);

bool starts_with(std::span<const std::uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

// The TIFF file in an EXIF segment: offsets count from its first byte.
class Tiff {
 public:
  explicit Tiff(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), little_(starts_with(bytes, "II")) {}

  // Of the first directory, the main image's; nothing if it is cut off before or has none.
  std::optional<std::uint32_t> orientation() const {
    if (!little_ && !starts_with(bytes_, "MM")) return {};
    if (number(2, 2) != 42U) return {};
    const std::optional<std::uint32_t> directory = number(4, 4);
    if (!directory) return {};
    const std::optional<std::uint32_t> entries = number(*directory, 2);
    for (std::uint32_t i = 0; i < entries.value_or(0); ++i) {
      const std::uint64_t at = std::uint64_t{*directory} + 2 + std::uint64_t{12} * i;
      const std::optional<std::uint32_t> tag = number(at, 2);
      if (!tag) return {};
      if (tag == orientation_tag && number(at + 2, 2) == type_short && number(at + 4, 4) == 1U)
        return number(at + 8, 2);
    }
    return {};
  }

 private:
  static constexpr std::uint32_t orientation_tag = 0x0112, type_short = 3;

  std::optional<std::uint32_t> number(std::uint64_t at, std::uint64_t bytes) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at) return {};
    std::uint32_t value = 0;
    for (std::uint64_t i = 0; i < bytes; ++i)
      value = value << 8 | bytes_[at + (little_ ? bytes - 1 - i : i)];
    return value;
  }

  std::span<const std::uint8_t> bytes_;
  bool little_;
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> jpeg) {
  std::size_t at = 2;  // after SOI
  for (;;) {
    if (at >= jpeg.size() || jpeg[at] != marker::prefix) return 1;
    while (at < jpeg.size() && jpeg[at] == marker::prefix) ++at;  // repeated ones are padding
    if (jpeg.size() - at < 3) return 1;
    const std::uint8_t code = jpeg[at];
    const std::size_t bytes = idx(jpeg[at + 1] << 8 | jpeg[at + 2]);
    if (code == marker::sos || bytes < 2 || bytes > jpeg.size() - at - 1) return 1;
    const auto body = jpeg.subspan(at + 3, bytes - 2);
    if (code == app1 && starts_with(body, exif_name)) {
      const std::uint32_t found = Tiff(body.subspan(exif_name.size())).orientation().value_or(1);
      return found >= 1 && found <= 8 ? static_cast<int>(found) : 1;
    }
    at += 1 + bytes;
  }
}

}  // namespace warpstep::data
