// Traces as files: as they are, or packed by gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace warpstep::profiler {

// The text of a file, unpacked when it is a gzip file. Throws DataError that names the file when it
// cannot be read, is damaged, or is longer than `max_bytes` when unpacked.
std::string read_trace_text(const std::filesystem::path& path,
                            std::uint64_t max_bytes = std::uint64_t{4} << 30);

}  // namespace warpstep::profiler
