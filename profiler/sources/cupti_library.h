// NVIDIA's libraries, loaded when the program runs.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <vector>

namespace warpstep::profiler {

class CuptiLibrary {
 public:
  // The first of the names that can be loaded. It is never unloaded: threads of its own may run.
  explicit CuptiLibrary(const std::vector<std::string>& names);

  template <class Function>
  void get(const char* name, Function& function) {
    if (!handle_) return;
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (!function && why_.empty()) why_ = fmt::format("the library has no {}", name);
  }
  const std::string& why() const { return why_; }  // empty: all is there

 private:
  void* handle_ = nullptr;
  std::string why_;
};

// Where libcupti.so.13 may be, likeliest first.
std::vector<std::string> cupti_paths();

}  // namespace warpstep::profiler
