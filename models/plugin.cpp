#include "models/plugin.h"

#include <dlfcn.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/version.h"

namespace warpstep::models {

void load_plugin(const std::filesystem::path& file) {
  const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
  if (!std::filesystem::exists(path))
    fail<DataError>("--plugin {}: there is no such file", path.string());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail<DataError>("--plugin {}: it does not load: {}", path.string(), dlerror());
  const auto entry = reinterpret_cast<const Plugin* (*)()>(dlsym(library, "warpstep_plugin"));
  if (!entry)
    fail<DataError>(
        "--plugin {}: this library has no WARPSTEP_PLUGIN(...) (models/plugin.h): it is no plugin",
        path.string());
  const Plugin& plugin = *entry();
  if (plugin.interface != plugin_interface())
    fail<DataError>(
        "--plugin {}: it was compiled with the headers of another Warpstep; rebuild it with those "
        "of this one ({}, commit {})",
        path.string(), version(), commit());
  add_models(plugin.models, path.string());
}

}  // namespace warpstep::models
