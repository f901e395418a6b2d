// warpstep weights: look into files of weights, and make other files of them.
#include "tools/warpstep/weights.h"

namespace warpstep::tools {
namespace {

Run declare_weights(CLI::App& app) {
  return declare_group(app, {{"info", "print names, shapes and statistics of a file's tensors",
                              declare_weights_info},
                             {"convert", "change names or precision, or leave the optimiser out",
                              declare_weights_convert}});
}

const Command weights_command("weights", "look into safetensors files and convert them",
                              declare_weights);

}  // namespace
}  // namespace warpstep::tools
