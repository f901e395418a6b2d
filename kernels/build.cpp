// In the module of every backend: what it was built from. Compiled with WARPSTEP_BUILD_VERSION, as
// version() is the engine's.
#include "engine/run/backend_build.h"

extern "C" __attribute__((visibility("default"))) const warpstep::ModuleBuild*
warpstep_backend_build() {
  static const warpstep::ModuleBuild build{WARPSTEP_BUILD_VERSION, warpstep::backend_interface()};
  return &build;
}
