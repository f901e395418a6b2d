// Devices for which plans can be made without a GPU: enough of their properties for cuDNN's
// heuristics and support checks. The figures are from public documents, not read from a device: a
// plan shows what is supported and how much workspace it needs, not what is fastest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

std::vector<std::string> assumed_devices();  // "sm_75", "sm_80", ...

// Default settings for a device of assumed_devices(). Throws UsageError for any other name.
Settings assume_device(std::string_view name);

// Its properties as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION expects them. Throws UsageError for
// any other name.
std::string assumed_properties(std::string_view name);

}  // namespace warpstep::cuda
