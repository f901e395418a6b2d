#include "data/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace warpstep::data {
namespace {

// Bytes at the end of a text that begin a character which more bytes may complete.
std::size_t incomplete_bytes(std::string_view text) {
  for (std::size_t count = 1; count <= 3 && count <= text.size(); ++count) {
    const auto byte = static_cast<unsigned char>(text[text.size() - count]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;  // not the first byte of its character
    const std::size_t wanted = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return count < wanted ? count : 0;
  }
  return 0;
}

// Bytes at the end of a text that `stop` begins with.
std::size_t begun_stop(std::string_view text, std::string_view stop) {
  for (std::size_t count = std::min(text.size(), stop.size()); count > 0; --count)
    if (text.substr(text.size() - count) == stop.substr(0, count)) return count;
  return 0;
}

}  // namespace

std::string TextStream::add(std::int32_t token) {
  const std::string_view bytes = tokenizer_.bytes_of(token);
  if (stopped_) return {};
  held_ += bytes;
  std::size_t shown = held_.size() - std::max(incomplete_bytes(held_), begun_stop(held_, stop_));
  if (const std::size_t at = stop_.empty() ? std::string::npos : held_.find(stop_);
      at != std::string::npos) {
    stopped_ = true;
    held_.resize(at);
    shown = at;
  }
  std::string text = held_.substr(0, shown);
  held_.erase(0, shown);
  return text;
}

std::string TextStream::rest() {
  return std::exchange(held_, {});
}

}  // namespace warpstep::data
