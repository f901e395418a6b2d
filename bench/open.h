// Opens the backend that a benchmark's command line names.
#pragma once

#include <memory>
#include <string>

#include "engine/run/backend.h"

namespace warpstep::bench {

// `name` is the name of a backend or the path of a module: from another build, or for tests.
inline std::shared_ptr<Backend> open(const std::string& name, const BackendOptions& options) {
  return name.find('/') == name.npos ? open_backend(name, options) : load_backend(name, options);
}

}  // namespace warpstep::bench
