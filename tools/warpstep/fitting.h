// Free memory for a run, and the largest batch that fits.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/run/backend.h"

namespace warpstep::tools {

// Bytes that a run may still allocate where `backend` keeps its buffers: of the device, or of the
// machine and this process's control group, which the ranks of a machine divide; minus a sixteenth
// for unplanned allocations. WARPSTEP_FREE_BYTES in the environment replaces the measurement, for
// tests.
std::uint64_t free_bytes(const Backend& backend, int ranks = 1);

// Whether sessions of so many bytes in their files can be read and reported beside what the run
// itself holds. `budget`: data::host_budget_bytes().
bool report_fits(std::uint64_t session_bytes, std::uint64_t budget);

// A batch below `too_large` of which `bytes` are at most `free` while those of the next larger one
// are not; 0 if there is none. `bytes` should grow with the batch; it is called few times if it
// grows about linearly.
std::int64_t largest_batch_that_fits(std::int64_t too_large,
                                     const std::function<std::uint64_t(std::int64_t)>& bytes,
                                     std::uint64_t free);

}  // namespace warpstep::tools
