// How far a run was, as a checkpoint's metadata have it.
#pragma once

#include <filesystem>
#include <string>

#include "engine/step_state.h"
#include "engine/trainer.h"

namespace warpstep {

inline constexpr const char* progress_key = "warpstep.progress";

std::string progress_text(const Progress& progress, const StepState& state);

// Reads such a text of the file `path` and checks that its numbers are finite, in range and fit
// each other. What it has of a step goes into `state`. DataError names the file and the field.
Progress parse_progress(const std::string& text, const std::filesystem::path& path,
                        StepState& state);

// That of a checkpoint, from its metadata alone.
Progress read_progress(const std::filesystem::path& path);

}  // namespace warpstep
