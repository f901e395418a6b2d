// The version of Warpstep. Every build looks up the commit, so it is never out of date.
#pragma once

#include <cstdint>

namespace warpstep {

// Of these headers, for what is compiled with them; before 1.0 the minor version counts changes of
// the C++ interface. version() begins with the same, or a test fails.
inline constexpr std::uint64_t version_major = 0, version_minor = 1;

const char* version();  // "0.1.0"
const char* commit();   // "1a2b3c4d5e6f", with "-dirty" after it when files differed; or "unknown"
// "GNU 12.2.0, Release"; of a build with sanitizers "GNU 12.2.0, Release, sanitizers: thread".
const char* compiler();

}  // namespace warpstep
