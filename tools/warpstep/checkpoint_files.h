// The checkpoints in a run directory, by their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace warpstep::tools {

// Those of an evaluation that none was better than, see best_checkpoint.h.
inline constexpr std::string_view best_name = "best.safetensors";
// Appended to what is after the checkpoint that a run goes on from.
inline constexpr std::string_view set_aside = ".old";

bool is_checkpoint_name(std::string_view name);  // "checkpoint-00000624.safetensors"
std::filesystem::path checkpoint_path(const std::filesystem::path& run, std::uint64_t step);
std::uint64_t step_of(const std::filesystem::path& checkpoint);  // by its name

// Those of steps, oldest first.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& run);

// The newest checkpoint of a run directory; the best one if there is no other. DataError when there
// is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run);

// `which` is "last", "best", the name of a file in the run directory or a path. UsageError or
// DataError that says what there is.
std::filesystem::path chosen_checkpoint(const std::filesystem::path& run, std::string_view which);

}  // namespace warpstep::tools
