// Folders of Hugging Face's transformers: model.safetensors with config.json beside it.
#pragma once

#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {

// If the weights of a language model are a run's checkpoint, or have transformers' config.json
// beside them, the model options there become the run's, with a message. Only these places have the
// number of heads and the form of GELU, which no shape shows. UsageError naming both for an option
// that was given another value.
void adopt_config_beside(const StartWeights& weights, RunOptions& options);

// warpstep weights export
Run declare_weights_export(Parser parser);

}  // namespace warpstep::tools
