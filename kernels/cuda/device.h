// Opens the CUDA device and describes it, or reports why there is none.
#pragma once

#include <string>

#include "engine/run/backend.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

// Makes `options.device` the process's device, or uses the hand-written properties that
// `options.assumed_device` names. Throws DeviceError if there is no such device, or if this build
// has no code for it.
Settings open_device(const BackendOptions& options);

// Whether launches of kernels/cuda/overlap.cuh overlap, on the device that was opened last.
bool overlaps_launches();

// "NVIDIA H200 (sm_90, 132 SMs, 139.8 GiB), driver for CUDA 13.0, runtime 13.0"
std::string describe_device(const Settings& settings);

// The device's place on the PCI bus, "0000:1b:00.0": unlike its ordinal it is the same for every
// library and in every process. Empty where it is not known.
std::string bus_of(const Settings& settings);

// "CUPTI 130001, NCCL 2.28.9, cuDNN of /usr/lib/libcudnn.so.9": libraries that the backend does not
// link, if they are found, and which of several cuDNNs it uses.
std::string describe_optional_libraries();

}  // namespace warpstep::cuda
