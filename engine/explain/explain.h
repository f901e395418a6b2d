// A program in words: what each call computes, moves and costs, where its buffers live, and what
// the step adds up to. Pure functions of a program; nothing runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/passes/compile.h"
#include "engine/run/program.h"

namespace warpstep {

// Text for people, columns aligned. Sizes of calls are those of the logical types, the least that
// any backend must move; sizes of memory are what this backend allocates.
std::string explain(const Program& program);  // all of the following, under one heading
std::string explain_calls(const Program& program);
std::string explain_memory(const Program& program);
std::string explain_totals(const Program& program);
// How the backend's libraries compute each convolution and matrix product: engine or algorithm and
// workspace.
std::string explain_plans(const Program& program);

// The same for machines: exact numbers, sizes in bytes; keys `backend`, `inputs`, `calls`, `memory`
// and `totals`.
nlohmann::json explain_json(const Program& program);

// What fusions save of the step that compile_step() makes of `model`: calls and bytes without any,
// with all, and for each row the step that leaves it out alone. For machines keys `unfused`,
// `fused` and `rows`.
std::string explain_fusions(const Graph& model, const StepOptions& options);
nlohmann::json fusions_json(const Graph& model, const StepOptions& options);

}  // namespace warpstep
