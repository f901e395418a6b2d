// Which line of the model a node comes from.
#pragma once

#include <string>

#include "engine/graph/graph.h"

namespace warpstep {

// "models/mlp.cpp:6", with the file's folder; empty for nodes of no line: updates, exchanges,
// statistics and the step's report are added to every model.
std::string model_line(const Node& node);
std::string model_line(Where where);

}  // namespace warpstep
