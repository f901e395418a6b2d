// Statuses of the CUDA runtime, as errors a user can act on.
#pragma once

#include <driver_types.h>

namespace warpstep::cuda {

// Throws a DeviceError with the call, the status and what to do about it: out of memory, a lost
// device, an unsupported architecture, a driver that is too old.
void check(cudaError_t status, const char* call);

// Drops a status, in destructors and clean-up after an error.
inline void ignore(cudaError_t) {}

}  // namespace warpstep::cuda
