#include "data/text/unicode.h"

#include <algorithm>

namespace warpstep::data {
namespace {

constexpr bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

CharacterClass class_of(char32_t character) {
  const auto ranges = character_ranges();
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), character,
      [](char32_t code, const CharacterRange& range) { return code < range.first; });
  if (after == ranges.begin() || std::prev(after)->last < character) return CharacterClass::other;
  return std::prev(after)->kind;
}

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const std::uint32_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  const Character invalid{lead, 1, false};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return invalid;
  char32_t code = lead & (0x7fU >> bytes);
  for (std::uint32_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return invalid;
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  const char32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return invalid;
  return {code, bytes, true};
}

Character last_character(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const std::string_view end = text.substr(text.size() - bytes);
    if (is_continuation(end[0])) continue;
    const Character character = first_character(end);
    if (character.bytes == bytes) return character;
    break;
  }
  return {static_cast<unsigned char>(text.back()), 1, false};
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

std::uint64_t count_characters(std::string_view text) {
  std::uint64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_character(text).bytes);
  return count;
}

}  // namespace warpstep::data
