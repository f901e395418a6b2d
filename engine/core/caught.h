// What code that is not the engine's throws: a user's op, model, data set or transform may throw
// anything.
#pragma once

#include <string>

namespace warpstep {

// What the exception that is being handled says; its type where it says nothing.
std::string caught_text();

}  // namespace warpstep
