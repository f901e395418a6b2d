// Text for people: numbers with their units, and help with words that a user typed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace warpstep {

// Single-character insertions, deletions, replacements and swaps of neighbours that turn a into b
// (the restricted Damerau-Levenshtein distance), letters compared without case.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that the user most likely meant: within a third of the word's length in edits, or
// with one of the two a prefix of the other. The first of equals; empty when none is that close.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean X?" for the nearest candidate, with `prefix` before its name; else empty.
std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string_view prefix = "");

// How a number in base units is shown.
enum class Unit : std::uint8_t {
  none,  // a plain number
  count,
  ns,     // shown as ns, us, ms or s
  bytes,  // shown as B, KiB, MiB, ...
  share,  // of 1, shown in %
  flops,  // a count, shown as MFLOP, ...
  per_second_flops,
  per_second_bytes,
};

// Three digits and a unit: "12.3 ms", "1.50 MiB", "95.2 %", "4,311,754", "1.20 TFLOP/s"; whole
// numbers of the smallest unit as they are: "870 ns", "512 B". "-" for what is not finite.
std::string quantity(double value, Unit unit);
// "4,311,754": rounded to a whole number.
std::string grouped(double value);
std::string grouped(std::integral auto value) {
  return grouped(static_cast<double>(value));
}
// "1 worker", "4 workers", "1,200 bytes".
std::string counted(double count, std::string_view noun);
std::string counted(std::integral auto count, std::string_view noun) {
  return counted(static_cast<double>(count), noun);
}

// A word of a command that can be pasted into a shell: as it is, or in quotes.
std::string shell_word(std::string_view word);

// Bytes of the UTF-8 character that the text, which is not empty, begins with. 0: it is not UTF-8,
// which has no overlong forms, surrogates or characters beyond U+10FFFF.
std::size_t utf8_bytes(std::string_view text);
// Characters of UTF-8, as a terminal's columns: the bytes that do not continue one.
std::size_t characters(std::string_view text);
// The text, or its first `most` - 3 characters and "...".
std::string clipped(std::string_view text, std::size_t most);

// For a terminal, which obeys control characters: names come from files that others may have sent.
// C0, DEL, U+0080 to U+009F and each byte that is not UTF-8 become '?'.
std::string printable(std::string_view text);
// As printable(), of text that may have several lines, and tabs.
std::string printable_lines(std::string_view text);

// Bytes in the columns of listings: "64 B", "392.0 KiB", "16.00 MiB".
std::string size_text(double bytes);

}  // namespace warpstep
