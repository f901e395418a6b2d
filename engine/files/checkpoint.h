// Checkpoints: safetensors files with the parameters under PyTorch's names and in its layouts, the
// optimiser's moments ("optimizer.exp_avg.conv1.weight"), and the rest of a run's state as
// metadata. Next to each running mean is PyTorch's num_batches_tracked, the steps trained.
// load_state_dict accepts all but the moments as it is; a run resumes from the file bit for bit.
#pragma once

#include <filesystem>
#include <string>

#include "engine/graph/ops/update.h"
#include "engine/graph/step_state.h"
#include "engine/run/store.h"
#include "engine/run/trainer.h"

namespace warpstep {

struct CheckpointInfo {
  std::string model;        // name in the zoo
  std::string config_json;  // of the run, as resolved
};

// Writes the file atomically (core/file.h). Throws DataError when writing fails, UsageError for an
// optimiser that does not keep as many moments as the store has.
void save_checkpoint(const std::filesystem::path& path, const Store& store,
                     Optimizer::Kind optimizer, const Progress& progress,
                     const CheckpointInfo& info);

// Loads everything, also the seed of the run's random draws, unless the file is of a version that
// did not write it: then that of the store stays. The file must come from a run with the same
// optimiser. Whether the position fits the data is checked by Trainer::run.
Progress load_checkpoint(const std::filesystem::path& path, Store& store,
                         Optimizer::Kind optimizer);

// Loads only the parameters, for evaluation; with `average`, the averaged weights if the file has
// them. Throws DataError as load_weights does (weights.h).
void load_parameters(const std::filesystem::path& path, Store& store, bool average = false);

// Both read only the metadata.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);
Progress read_progress(const std::filesystem::path& path);

// The metadata entry with a run's progress.
inline constexpr const char* progress_key = "warpstep.progress";
std::string progress_text(const Progress& progress, const StepState& state);
// Reads such a text from the file `path`; its numbers must be finite, in range and consistent. The
// step's fields are stored in `state`. DataError names the file and the field.
Progress parse_progress(const std::string& text, const std::filesystem::path& path,
                        StepState& state);

}  // namespace warpstep
