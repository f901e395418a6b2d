// The tree of the model: model, block, layer, call, each with its time and the line that made it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/table.h"
#include "profiler/analysis/work.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// A module of the model, as its weights are named: "layer1" has "layer1.0", which has the layer
// "layer1.0.conv1" with its calls. A module whose only content is another one is left out, as is
// the call of a layer that has but one. Times are means per step over the recorded steps.
struct ModuleRow {
  std::string path;    // "layer1.0.conv1"; of a call the layer's; "": the whole step
  std::string label;   // what the path adds to the parent's: "conv1"; of a call its title
  std::string phase;   // of a call, as CallRow
  std::string source;  // "models/resnet.cpp:20", "models/resnet.cpp:20-34"; may be empty
  int depth = 0;       // of the tree: 0 is the whole step
  int parent = -1;     // into the rows
  int order = 0;       // place in the model's order
  int call = -1;       // index of the only call; -1: several
  double calls = 0;    // per step
  double ns = 0;  // of which forward (with the loss), backward and update, and what has no phase
  double forward_ns = 0, backward_ns = 0, update_ns = 0;
  double flops = 0, bytes = 0;  // per step
  double share = 0;             // of the steps' time, of 1
  bool is_leaf = true;
};

// Parents before their children; siblings in the model's order, that of the forward half. Empty if
// no call has a time.
std::vector<ModuleRow> find_modules(const Work& work);
// The same tree with the longest siblings first.
std::vector<ModuleRow> by_time(const std::vector<ModuleRow>& modules);

// The parts of a layer's name, which '.' and '/' separate: its modules from outside to inside.
std::vector<std::string_view> module_parts(std::string_view layer);
// The first `depth` of them as a path: "layer1.0" of "layer1.0.conv1" for 2.
std::string module_path(std::string_view layer, std::size_t depth);
// The module of each call of the session's program, by the call's index: rows for a comparison of
// modules. "": of no layer. Empty for a session without a program.
std::vector<std::string> call_modules(const Session& session, std::size_t depth);

Table modules_table(const Work& work);

}  // namespace warpstep::profiler
