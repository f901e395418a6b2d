// The options of the loss and of the update: what is minimised, and how gradients become weights.
#pragma once

#include "engine/graph/layers.h"
#include "engine/passes/update.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

// --loss, --label-smoothing, --class-weights, --clip-norm, --accumulate, --ema, --trust.
void declare_update_options(CLI::App& app, RunOptions& options);

// UsageError: weights that are not one a class.
LossOptions loss_options(const RunOptions& options, std::int64_t classes);
UpdateOptions update_options(const RunOptions& options);
Optimizer optimizer_of(const RunOptions& options);  // UsageError for what cannot be meant

}  // namespace warpstep::tools
