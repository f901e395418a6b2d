#include "data/jpeg_seek.h"

#include <algorithm>

#include "engine/core/types.h"

namespace warpstep::data {

void JpegExcerpt::append(std::span<const std::uint8_t> file, std::size_t begin, std::size_t bytes) {
  copies_.push_back({bytes_.size(), begin});
  const std::uint8_t* from = file.data() + begin;
  bytes_.insert(bytes_.end(), from, from + bytes);
}

void JpegExcerpt::append_header(std::span<const std::uint8_t> file, const JpegHeader& header) {
  bytes_.assign({marker::prefix, marker::soi});
  const auto high = [](std::int64_t value) { return static_cast<std::uint8_t>(value >> 8); };
  const auto low = [](std::int64_t value) { return static_cast<std::uint8_t>(value); };
  for (std::size_t s = 0; s < header.segment_count; ++s) {
    const JpegSegment& segment = header.segments[s];
    const std::size_t at = bytes_.size();
    append(file, segment.begin, segment.bytes);
    const auto length = static_cast<std::int64_t>(segment.bytes - 2);  // APP0 may be shortened
    bytes_[at + 2] = high(length);
    bytes_[at + 3] = low(length);
    if (bytes_[at + 1] == header.frame) {
      bytes_[at + 5] = high(rectangle_.height);
      bytes_[at + 6] = low(rectangle_.height);
      bytes_[at + 7] = high(rectangle_.width);
      bytes_[at + 8] = low(rectangle_.width);
    }
  }
}

void JpegExcerpt::append_intervals(std::span<const std::uint8_t> file, const Area& area,
                                   std::int64_t per_row) {
  int number = 0;
  for (std::int64_t y = area.top; y < area.bottom; ++y) {
    for (std::int64_t x = area.left; x < area.right; ++x) {
      const std::size_t i = idx(y * per_row + x);
      append(file, intervals_[i], intervals_[i + 1] - intervals_[i]);
      bytes_.back() = static_cast<std::uint8_t>(marker::rst0 + number);
      number = (number + 1) % 8;
    }
  }
  bytes_.back() = marker::eoi;
}

bool JpegExcerpt::cut(std::span<const std::uint8_t> file, const JpegHeader& header,
                      const Window& window, bool only_if_worthwhile) {
  if (!find_intervals(file, header, intervals_)) return false;
  const std::int64_t margin = header.margin();
  const std::int64_t tall = header.mcu_height();
  const std::int64_t wide = header.mcu_width() * header.restart_interval;
  const std::int64_t per_row = header.mcus_per_row() / header.restart_interval;
  const auto past = [&](std::int64_t pixel, std::int64_t size, std::int64_t step) {
    return (std::min(pixel + margin, size) + step - 1) / step;
  };
  const Area area{std::max<std::int64_t>(0, window.y - margin) / tall,
                  past(window.y + window.height, header.height, tall),
                  std::max<std::int64_t>(0, window.x - margin) / wide,
                  past(window.x + window.width, header.width, wide)};
  const std::int64_t needed = (area.bottom - area.top) * (area.right - area.left);
  if (only_if_worthwhile && needed * 8 > per_row * header.mcu_rows() * worthwhile_eighths)
    return false;
  rectangle_.y = area.top * tall;
  rectangle_.x = area.left * wide;
  rectangle_.height = std::min(header.height, area.bottom * tall) - rectangle_.y;
  rectangle_.width = std::min(header.width, area.right * wide) - rectangle_.x;
  copies_.clear();
  append_header(file, header);
  append_intervals(file, area, per_row);
  return true;
}

std::size_t JpegExcerpt::position_in_file(std::size_t at) const {
  const auto next = std::upper_bound(copies_.begin(), copies_.end(), at,
                                     [](std::size_t a, const Copy& copy) { return a < copy.at; });
  if (next == copies_.begin()) return at;
  const Copy& copy = *(next - 1);
  return copy.from + (at - copy.at);
}

}  // namespace warpstep::data
