// The JSON that the program reads and writes: keys keep their order.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace warpstep::tools {

using Json = nlohmann::ordered_json;

}  // namespace warpstep::tools
