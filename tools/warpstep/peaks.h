// The best peaks that were seen on this machine: one measured while it was busy is too low, and
// shares of it pass 100 %.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tools/warpstep/json.h"

namespace warpstep::tools {

// The sizes of measure_peaks() on a host that can give `free_bytes`. What takes more than a quarter
// of that is not measured: a run must not be killed for its profile.
struct PeakSizes {
  std::int64_t product = 0;  // n of an n x n matrix product; 0: none
  std::int64_t stream = 0;   // float values of a relu; 0: none
};
PeakSizes host_peak_sizes(std::uint64_t free_bytes);

// `measured` (measure_peaks()) with each value the larger of itself and the one kept under `key` in
// folder/peaks.json, which then has the larger ones: {KEY: {"flops_per_second",
// "bytes_per_second"}}. "how" says so, and "now" has what was measured. Without a folder, or with a
// file that cannot be read or written, `measured`.
Json with_best_peaks(Json measured, const std::string& key, const std::filesystem::path& folder);

}  // namespace warpstep::tools
