// Pieces of JSON as readers of traces want them: ", " and ": " with their spaces (one of them finds
// the rank by a pattern that asks for the space), times in us with three decimals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "profiler/session/session.h"

namespace warpstep::profiler {

std::string json_quoted(std::string_view text);  // bytes that are no UTF-8 become U+FFFD
std::string spaced(const Json& json);            // on one line; null for what is nested 100 deep
std::string thousandths(std::uint64_t n);        // 1234567 -> "1234.567": never through a double

}  // namespace warpstep::profiler
