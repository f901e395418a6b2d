// Splits text as GPT-2 does before byte pairs are merged, which happens within a piece only:
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Bytes that are no UTF-8 are neither letters, numbers nor spaces, each for itself.
#pragma once

#include <cstddef>
#include <string_view>

namespace warpstep::data {

// Bytes of the first piece of a text of at least 1 byte; at least 1.
std::size_t first_piece(std::string_view text);

// Whether a text may be cut before byte i, 0 < i < size: the pieces of both parts are those of the
// whole. True before a space that follows no space.
bool is_piece_cut(std::string_view text, std::size_t i);

}  // namespace warpstep::data
