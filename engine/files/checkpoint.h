// Checkpoints: safetensors with PyTorch's parameter names and layouts, the optimiser's moments
// under its names
// ("optimizer.exp_avg.conv1.weight"), and the rest of a run's state as metadata. A running mean has
// PyTorch's num_batches_tracked beside it, the steps trained. load_state_dict takes all but the
// moments as it is; a run resumes from the file bit for bit.
#pragma once

#include <filesystem>
#include <string>

#include "engine/graph/ops/update.h"
#include "engine/graph/step_state.h"
#include "engine/run/store.h"
#include "engine/run/trainer.h"

namespace warpstep {

// How far a run was, as a checkpoint's metadata have it.

inline constexpr const char* progress_key = "warpstep.progress";

std::string progress_text(const Progress& progress, const StepState& state);

// Reads such a text of the file `path` and checks that its numbers are finite, in range and fit
// each other. What it has of a step goes into `state`. DataError names the file and the field.
Progress parse_progress(const std::string& text, const std::filesystem::path& path,
                        StepState& state);

// That of a checkpoint, from its metadata alone.
Progress read_progress(const std::filesystem::path& path);

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
