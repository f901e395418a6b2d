// Help with words that a user typed.
#pragma once

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

// Bytes as people read them: "64 B", "392.0 KiB", "16.00 MiB".
std::string size_text(double bytes);

}  // namespace warpstep
