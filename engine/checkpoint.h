// Checkpoints: safetensors with PyTorch's parameter names and layouts, the optimiser's moments
// under its names
// ("optimizer.exp_avg.conv1.weight"), and the rest of a run's state as metadata. A running mean has
// PyTorch's num_batches_tracked beside it, the steps trained. load_state_dict takes all but the
// moments as it is; a run resumes from the file bit for bit.
#pragma once

#include <filesystem>
#include <string>

#include "engine/ops/update.h"
#include "engine/store.h"
#include "engine/trainer.h"

namespace warpstep {

struct CheckpointInfo {
  std::string model;        // name in the zoo
  std::string config_json;  // of the run, as resolved
};

// Whole or not at all, see core/file.h. Throws DataError when the disk refuses.
void save_checkpoint(const std::filesystem::path& path, const Store& store,
                     Optimizer::Kind optimizer, const Progress& progress,
                     const CheckpointInfo& info);

// Parameters alone: for evaluation; with `average`, the average of the weights where the file has
// one. Throws DataError as load_weights does (weights.h).
void load_parameters(const std::filesystem::path& path, Store& store, bool average = false);

// Everything; the file must come from a run with the same optimiser.
Progress load_checkpoint(const std::filesystem::path& path, Store& store,
                         Optimizer::Kind optimizer);

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace warpstep
