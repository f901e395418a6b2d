// UTF-8, and the classes of characters that GPT-2's pattern distinguishes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace warpstep::data {

enum class CharacterClass : std::uint8_t { other, letter, number, space };  // -, \p{L}, \p{N}, \s

struct CharacterRange {
  std::uint32_t first, last;
  CharacterClass kind;
};
// Sorted; characters in no range are `other`. In the generated unicode_ranges.cpp.
std::span<const CharacterRange> character_ranges();

CharacterClass class_of(char32_t character);

// The first character of a text. A byte that begins no valid UTF-8 (too long or too short a form, a
// surrogate, above U+10FFFF, or cut off) is a character of its own that is not valid.
struct Character {
  char32_t code = 0;  // if not valid, the byte
  std::uint32_t bytes = 1;
  bool valid = true;

  CharacterClass kind() const { return valid ? class_of(code) : CharacterClass::other; }
};
Character first_character(std::string_view text);  // of at least 1 byte
Character last_character(std::string_view text);   // of at least 1 byte

void append_utf8(std::string& text, char32_t code);

// With bytes that are no valid UTF-8 as characters of their own.
std::uint64_t count_characters(std::string_view text);

}  // namespace warpstep::data
