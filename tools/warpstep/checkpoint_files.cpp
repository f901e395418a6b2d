#include "tools/warpstep/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "engine/core/error.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "checkpoint-", suffix = ".safetensors";

// The step in a name that checkpoint_path() gives, and in no other: a file that somebody put there
// must not be taken for the newest.
std::optional<std::uint64_t> step_in(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  const char* end = name.data() + name.size() - suffix.size();
  std::uint64_t step = 0;
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || at != end || checkpoint_path({}, step) != name) return std::nullopt;
  return step;
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  return step_in(name).has_value();
}

fs::path checkpoint_path(const fs::path& run, std::uint64_t step) {
  return run / fmt::format("{}{:08}{}", prefix, step, suffix);
}

std::uint64_t step_of(const fs::path& checkpoint) {
  return step_in(checkpoint.filename().string()).value_or(0);
}

std::vector<fs::path> checkpoints(const fs::path& run) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(run))
    if (is_checkpoint_name(entry.path().filename().string())) paths.push_back(entry.path());
  std::ranges::sort(paths, {}, step_of);
  return paths;
}

fs::path newest_checkpoint(const fs::path& run) {
  if (!fs::is_directory(run))
    fail<DataError>("{}: there is no such run directory or checkpoint", run.string());
  const std::vector<fs::path> all = checkpoints(run);
  if (!all.empty()) return all.back();
  if (fs::exists(run / best_name)) return run / best_name;
  fail<DataError>(
      "{}: no {}*{} in it; a run that was stopped before it saved one starts again with "
      "--overwrite, and saves earlier with --checkpoint-every N",
      run.string(), prefix, suffix);
}

fs::path chosen_checkpoint(const fs::path& run, std::string_view which) {
  if (which == "last") return newest_checkpoint(run);
  if (!fs::is_directory(run))
    fail<UsageError>("--checkpoint {}: goes with a run directory, and {} is none", which,
                     run.string());
  if (which == "best") {
    if (fs::exists(run / best_name)) return run / best_name;
    fail<DataError>(
        "{}: no {} in it; a run keeps one from its first evaluation after training began on, "
        "unless --no-keep-best; --checkpoint last takes the newest checkpoint",
        run.string(), best_name);
  }
  for (const fs::path& path : {run / which, fs::path(which)})
    if (fs::is_regular_file(path)) return path;
  fail<DataError>(
      "--checkpoint {}: there is no such file, nor one of that name in {}; say best, "
      "last or a file",
      which, run.string());
}

}  // namespace warpstep::tools
