// Statuses of the CUDA runtime, as errors a user can act on.
#pragma once

#include <driver_types.h>

namespace warpstep::cuda {

// Throws a DeviceError with the call, the status and what to do about it: OutOfDeviceMemory (of
// runtime.h), DeviceLost, or one for an unsupported architecture, a driver that is too old.
void check(cudaError_t status, const char* call);

// Waits for the current device; throws DeviceLost if an error of it persists. For callers that take
// a library's refusal as an answer: a library on a lost device refuses everything.
void require_sound_device();

// Drops a status, in destructors and clean-up after an error.
inline void ignore(cudaError_t) {}

}  // namespace warpstep::cuda
