// What the device reaches at best: ceilings for the roofline, measured and not taken from a data
// sheet.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/backend.h"

namespace warpstep::tools {

// {"flops_per_second": {PRECISION: x}, "bytes_per_second": y, "how": text}: a large matrix product
// and a large relu of this backend's own, the best of a few runs each. Takes some tenths of a
// second; empty where it cannot be measured.
nlohmann::ordered_json measure_peaks(const std::shared_ptr<Backend>& backend,
                                     const std::string& precision);

}  // namespace warpstep::tools
