// The entry points of a backend as of another build: of an EARLIER version, of this version with
// CHANGED headers, or of a version from before modules named theirs. It must not be opened.
#include <cstdlib>

#include "engine/core/version.h"
#include "engine/run/backend_build.h"

extern "C" warpstep::Backend* warpstep_backend(const warpstep::BackendOptions&);
extern "C" warpstep::Backend* warpstep_backend(const warpstep::BackendOptions&) {
  std::abort();
}

#if defined(EARLIER) || defined(CHANGED)
extern "C" const warpstep::ModuleBuild* warpstep_backend_build();
extern "C" const warpstep::ModuleBuild* warpstep_backend_build() {
#ifdef EARLIER
  static const warpstep::ModuleBuild build{"0.0.9", warpstep::backend_interface()};
#else
  static const warpstep::ModuleBuild build{warpstep::version(), 1};
#endif
  return &build;
}
#endif
