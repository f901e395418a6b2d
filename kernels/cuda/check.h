// Statuses of the CUDA runtime, as errors a user can act on.
#pragma once

#include <driver_types.h>

namespace warpstep::cuda {

// Throws DeviceError that names `call`, the status, and what to do about it: out of memory, a lost
// device, an unsupported architecture, a driver that is too old.
void check(cudaError_t status, const char* call);

// For destructors and clean-up after an error: the status is looked at by nobody.
inline void ignore(cudaError_t) {}

}  // namespace warpstep::cuda
