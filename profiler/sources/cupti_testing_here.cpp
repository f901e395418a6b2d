// What this machine's own driver and CUPTI can be asked.
#include <dlfcn.h>
#include <fmt/format.h>

#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler::testing {

std::string why_no_gpu_here() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!driver) return fmt::format("there is no NVIDIA driver ({})", ::dlerror());
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(::dlsym(driver, "cuInit"));
  if (!init) return fmt::format("there is no NVIDIA driver ({})", ::dlerror());
  const CUresult result = init(0);
  if (result == CUDA_SUCCESS) return {};
  return fmt::format("the NVIDIA driver finds no GPU: cuInit gave {}", static_cast<int>(result));
}

std::string why_cupti_cannot_be_asked(const CuptiApi& api) {
  if (!api.get_version) return "CUPTI is not on this machine: " + api.why_no_cupti;
  Dl_info place{};
  if (::dladdr(reinterpret_cast<const void*>(api.get_version), &place) == 0) return "no file";
  void* library = ::dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (library && ::dlsym(library, "cuptiActivityEnable_v2") && !why_no_gpu_here().empty())
    return "from 13.2 on CUPTI's functions need a driver";
  return {};
}

}  // namespace warpstep::profiler::testing
