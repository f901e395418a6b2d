// Traces as files: as they are, or packed by gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// Pieces of JSON as readers of traces want them: ", " and ": " with their spaces (one of them finds
// the rank by a pattern that asks for the space), times in us with three decimals.

std::string json_quoted(std::string_view text);  // bytes that are no UTF-8 become U+FFFD
std::string spaced(const Json& json);            // on one line; null for what is nested 100 deep
std::string thousandths(std::uint64_t n);        // 1234567 -> "1234.567": never through a double

// The text of a file, unpacked when it is a gzip file. Throws DataError that names the file when it
// cannot be read, is damaged, or is longer than `max_bytes` when unpacked.
std::string read_trace_text(const std::filesystem::path& path,
                            std::uint64_t max_bytes = std::uint64_t{4} << 30);

}  // namespace warpstep::profiler
