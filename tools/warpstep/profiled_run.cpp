#include "tools/warpstep/profiled_run.h"

#include "engine/core/error.h"

namespace warpstep::tools {

std::filesystem::path ProfiledRun::directory() const {
  return file.has_parent_path() ? file.parent_path() : ".";
}

ProfiledRun open_profiled_run(const std::string& run) {
  const std::filesystem::path path(run);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail<DataError>("{}: there is no such run directory or session file", run);
  const bool is_directory = std::filesystem::is_directory(path, none);
  const std::filesystem::path file = is_directory ? path / "session.prof" : path;
  if (!std::filesystem::is_regular_file(file, none))
    fail<DataError>("{}: this run was not profiled; train with --profile spans to record it",
                    file.string());
  return {file, profiler::read_session(file)};
}

}  // namespace warpstep::tools
