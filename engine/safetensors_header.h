// The JSON header of a safetensors file, checked; used by safetensors*.cpp and weights*.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/safetensors.h"

namespace warpstep::safetensors {

inline constexpr std::uint64_t length_bytes = 8;                // the field that holds the length
inline constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference reader's limit
inline constexpr std::size_t max_rank = 32;
inline constexpr std::string_view metadata_name = "__metadata__";

struct Header {
  Metadata metadata;
  std::vector<StoredTensor> tensors;  // in the data's order
};

// `text` is what follows the length; `data_bytes` is what follows the text. Throws DataError that
// begins with `path`.
Header parse_header(const std::string& path, std::string_view text, std::uint64_t data_bytes);

// Elements times their size; false when that does not fit 64 bits.
bool size_of(StoredType type, const std::vector<std::uint64_t>& shape, std::uint64_t& bytes);

// A name for messages: quoted, made printable, cut when long.
std::string printable(std::string_view name);

}  // namespace warpstep::safetensors
