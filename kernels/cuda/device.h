// Which CUDA device, what it is, and why there is none.
#pragma once

#include <string>

#include "engine/run/backend.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

// Makes `options.device` the process's device, or takes the hand-written properties that
// `options.assumed_device` names. DeviceError when there is no such device, or none that this
// build's code runs on.
Settings open_device(const BackendOptions& options);

// "NVIDIA H200 (sm_90, 132 SMs, 139.8 GiB), driver for CUDA 13.0, runtime 13.0"
std::string describe_device(const Settings& settings);

// "CUPTI 130001, NCCL 2.28.9": libraries that nothing here links, where the loader finds them.
std::string describe_optional_libraries();

}  // namespace warpstep::cuda
