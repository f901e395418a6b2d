// The entry points of a backend and of MPI's module as of another build: of an EARLIER version, of
// this version with CHANGED headers, or of a version from before modules named theirs. They must
// not be opened.
#include <cstdlib>

#include "engine/core/version.h"
#include "engine/dist/communicator.h"
#include "engine/run/backend_build.h"

using namespace warpstep;

extern "C" Backend* warpstep_backend(const BackendOptions&);
extern "C" Backend* warpstep_backend(const BackendOptions&) {
  std::abort();
}
extern "C" Transport* warpstep_transport();
extern "C" Transport* warpstep_transport() {
  std::abort();
}

#if defined(EARLIER) || defined(CHANGED)
namespace {

ModuleBuild another([[maybe_unused]] std::uint64_t interface) {
#ifdef EARLIER
  return {"0.0.9", interface};
#else
  return {version(), 1};
#endif
}

}  // namespace

extern "C" const ModuleBuild* warpstep_backend_build();
extern "C" const ModuleBuild* warpstep_backend_build() {
  static const ModuleBuild build = another(backend_interface());
  return &build;
}
extern "C" const ModuleBuild* warpstep_transport_build();
extern "C" const ModuleBuild* warpstep_transport_build() {
  static const ModuleBuild build = another(transport_interface());
  return &build;
}
#endif
