// Listings of a program: the work and cost of each call, the memory plan, and totals per step. Pure
// functions of a program; nothing runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/passes/compile.h"
#include "engine/run/program.h"

namespace warpstep {

// Text with aligned columns. Sizes of calls are those of the logical types (Cost); sizes of memory
// are those that this backend allocates.
std::string explain(const Program& program);  // calls, memory and totals, under one heading
std::string explain_calls(const Program& program);
// The engine or algorithm and the workspace that the backend's libraries use for each convolution
// and matrix product.
std::string explain_plans(const Program& program);

// The same as JSON: exact numbers, sizes in bytes; keys `backend`, `inputs`, `calls`, `memory` and
// `totals`.
nlohmann::json explain_json(const Program& program);

// The effect of fusions on the step that compile_step() makes of `model`: its calls and bytes
// without any, with all, and without each row of the table alone. JSON keys: `unfused`, `fused` and
// `rows`.
std::string explain_fusions(const Graph& model, const StepOptions& options);
nlohmann::json fusions_json(const Graph& model, const StepOptions& options);

}  // namespace warpstep
