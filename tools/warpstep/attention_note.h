// A note where attention runs without tensor cores, which no other output shows at once.
#pragma once

#include <string>

#include "engine/run/program.h"

namespace warpstep::tools {

// What runs so, why, what that costs and what to do; empty where none does.
std::string attention_note(const Program& program);

}  // namespace warpstep::tools
