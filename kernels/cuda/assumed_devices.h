// Devices that plans can be made for where there is none: enough of their properties for cuDNN's
// heuristics and support checks. Written by hand from public figures, not read from a device, so
// a plan for one of them shows what is supported and how much workspace it takes, not what is
// fastest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

std::vector<std::string> assumed_devices();  // "sm_75", "sm_80", ...

// Default settings for the device. Throws UsageError for a name that is not one of
// assumed_devices().
Settings assume_device(std::string_view name);

// What CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION takes. Throws UsageError likewise.
std::string assumed_properties(std::string_view name);

}  // namespace warpstep::cuda
