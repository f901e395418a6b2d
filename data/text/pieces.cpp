#include "data/text/pieces.h"

#include <array>

#include "data/text/unicode.h"

namespace warpstep::data {
namespace {

// Classes of ASCII; `wide` where a character has more bytes, or the byte is invalid.
constexpr std::uint8_t wide = 0xff;

constexpr std::array<std::uint8_t, 256> make_ascii_classes() {
  std::array<std::uint8_t, 256> classes{};
  const auto set = [&](int byte, CharacterClass kind) {
    classes[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(kind);
  };
  for (int letter = 0; letter < 26; ++letter) {
    set('a' + letter, CharacterClass::letter);
    set('A' + letter, CharacterClass::letter);
  }
  for (int digit = '0'; digit <= '9'; ++digit) set(digit, CharacterClass::number);
  for (int space = '\t'; space <= '\r'; ++space) set(space, CharacterClass::space);
  set(' ', CharacterClass::space);
  for (std::size_t byte = 128; byte < 256; ++byte) classes[byte] = wide;
  return classes;
}
constexpr std::array<std::uint8_t, 256> ascii_classes = make_ascii_classes();

struct Step {
  CharacterClass kind;
  std::uint32_t bytes;
};

// The character at byte `at`.
Step step_at(std::string_view text, std::size_t at) {
  const std::uint8_t kind = ascii_classes[static_cast<unsigned char>(text[at])];
  if (kind != wide) return {static_cast<CharacterClass>(kind), 1};
  const Character character = first_character(text.substr(at));
  return {character.kind(), character.bytes};
}

// The end of the run of this class that begins at or after `at`.
std::size_t end_of_run(std::string_view text, std::size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Step step = step_at(text, at);
    if (step.kind != kind) break;
    at += step.bytes;
  }
  return at;
}

// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at the beginning; 0 if there is none.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char first = text[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = text.size() > 2 ? text[2] : '\0';
  return (second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l') ? 3
                                                                                              : 0;
}

// Of a text that begins with a space, the run without its last one if a word follows.
std::size_t spaces(std::string_view text) {
  std::size_t end = 0;
  std::size_t last = 0;  // the beginning of the last space
  while (end < text.size()) {
    const Step step = step_at(text, end);
    if (step.kind != CharacterClass::space) return last == 0 ? end : last;
    last = end;
    end += step.bytes;
  }
  return end;
}

}  // namespace

std::size_t first_piece(std::string_view text) {
  if (const std::size_t bytes = contraction(text); bytes != 0) return bytes;
  const std::size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Step step = step_at(text, begin);
  if (step.kind == CharacterClass::space) return spaces(text);
  return end_of_run(text, begin + step.bytes, step.kind);
}

bool is_piece_cut(std::string_view text, std::size_t i) {
  return step_at(text, i).kind == CharacterClass::space &&
         last_character(text.substr(0, i)).kind() != CharacterClass::space;
}

}  // namespace warpstep::data
