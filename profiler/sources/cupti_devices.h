// Properties of the devices, through any table.
#pragma once

#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

std::vector<Device> query_devices(const CuptiApi& api);

}  // namespace warpstep::profiler
