// Whether a run fits into memory, and if not, the batch that does.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/run/backend.h"

namespace warpstep::tools {

// Bytes that a run may still take where `backend` keeps its buffers: of the device, or of the
// machine and this process's control group, less a sixteenth for what is not planned.
// WARPSTEP_FREE_BYTES in the environment replaces the measurement, for tests.
std::uint64_t free_bytes(const Backend& backend);

// A batch below `too_large` of which `bytes` are at most `free` while those of the next larger one
// are not; 0 if there is none. `bytes` should grow with the batch; it is asked few times where it
// grows about linearly.
std::int64_t largest_batch_that_fits(std::int64_t too_large,
                                     const std::function<std::uint64_t(std::int64_t)>& bytes,
                                     std::uint64_t free);

}  // namespace warpstep::tools
