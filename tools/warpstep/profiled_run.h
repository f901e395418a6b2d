// The profile that a run left, as `report` and `compare` name it: a run directory or a .prof file.
#pragma once

#include <filesystem>
#include <string>

#include "profiler/session/session.h"

namespace warpstep::tools {

struct ProfiledRun {
  std::filesystem::path file;  // session.prof
  profiler::Session session;

  std::filesystem::path directory() const;  // that it lies in
};
// Throws DataError that says how to record one where there is none.
ProfiledRun open_profiled_run(const std::string& run);

}  // namespace warpstep::tools
