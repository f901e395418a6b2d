#include "data/text/text_stream.h"

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

}  // namespace

std::string TextStream::add(std::int32_t token) {
  held_ += tokenizer_.bytes_of(token);
  const std::size_t later = incomplete_bytes(held_);
  std::string text = held_.substr(0, held_.size() - later);
  held_.erase(0, text.size());
  return text;
}

std::string TextStream::rest() {
  return std::exchange(held_, {});
}

}  // namespace warpstep::data
