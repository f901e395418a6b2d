// The entry points of MPI's module as of another build: of an EARLIER version, of this version with
// CHANGED headers, or of a version from before modules named theirs. It must not be opened.
#include <cstdlib>

#include "engine/core/version.h"
#include "engine/dist/transport_build.h"

extern "C" warpstep::Transport* warpstep_transport();
extern "C" warpstep::Transport* warpstep_transport() {
  std::abort();
}

#if defined(EARLIER) || defined(CHANGED)
extern "C" const warpstep::ModuleBuild* warpstep_transport_build();
extern "C" const warpstep::ModuleBuild* warpstep_transport_build() {
#ifdef EARLIER
  static const warpstep::ModuleBuild build{"0.0.9", warpstep::transport_interface()};
#else
  static const warpstep::ModuleBuild build{warpstep::version(), 1};
#endif
  return &build;
}
#endif
