#include "tools/warpstep/weights_start.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "engine/core/error.h"
#include "engine/weights.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

void declare_start_weights(CLI::App& app, StartWeights& weights) {
  app.add_option("--weights", weights.file,
                 "start from the weights in this safetensors file, a state_dict of PyTorch's or a "
                 "checkpoint; docs/weights.md");
  app.add_flag("--allow-missing", weights.allow_missing,
               "with --weights: load what fits by name and shape, and say what does not; for "
               "example for another number of classes");
}

void check_start_weights(const StartWeights& weights, bool resumes) {
  if (weights.file.empty()) {
    if (weights.allow_missing) fail<UsageError>("--allow-missing goes with --weights");
    return;
  }
  if (!std::filesystem::exists(weights.file))
    fail<DataError>("--weights {}: there is no such file", weights.file);
  if (resumes)
    fail<UsageError>(
        "--weights does not go with --resume: the run goes on with its own; a new run can start "
        "from other weights");
}

nlohmann::ordered_json load_start_weights(const StartWeights& weights, Store& store) {
  if (weights.file.empty()) return nullptr;
  const LoadReport report =
      load_weights(weights.file, store,
                   {.allow_missing = weights.allow_missing,
                    .fix = "--allow-missing loads what fits and leaves the rest as initialised"});
  for (const std::string& line : report.lines()) say("{}\n", line);
  return {{"file", std::filesystem::absolute(weights.file).string()},
          {"loaded", report.loaded},
          {"of", report.wanted}};
}

}  // namespace warpstep::tools
