// Which of the encodings a file is in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "data/image.h"

namespace warpstep::data {

inline constexpr std::uint64_t max_encoded_bytes = std::uint64_t{1} << 30;  // of one sample

// By the ending of a name, in any case: .png; .jpg or .jpeg.
bool has_png_name(std::string_view name);
bool has_jpeg_name(std::string_view name);

// By the first bytes; by the name where they are neither, so that its decoder tells the fault.
Encoding encoding_of(std::span<const std::uint8_t> bytes, std::string_view name);

}  // namespace warpstep::data
