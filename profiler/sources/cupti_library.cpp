#include "profiler/sources/cupti_library.h"

#include <cstdlib>

namespace warpstep::profiler {

CuptiLibrary::CuptiLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_) break;
    const char* error = ::dlerror();
    if (why_.empty()) why_ = error ? error : name + " cannot be loaded";
  }
  if (handle_) why_.clear();
}

std::vector<std::string> cupti_paths() {
  const std::string name = "libcupti.so.13";
  std::vector<std::string> paths{name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable))
      for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
        paths.push_back(root + (folder + name));
  for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
    paths.push_back("/usr/local/cuda" + (folder + name));
  return paths;
}

}  // namespace warpstep::profiler
