// In the module of every backend: what it was built from. Compiled with WARPSTEP_BUILD_VERSION, as
// version() is the engine's.
#include "engine/run/backend_build.h"

extern "C" __attribute__((visibility("default"))) const warpstep::BackendBuild*
warpstep_backend_build() {
  static const warpstep::BackendBuild build{.version = WARPSTEP_BUILD_VERSION};
  return &build;
}
