#include "models/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "engine/core/version.h"

namespace warpstep::models {
namespace {

void add(const Model& model, const std::string& path) {
  static std::map<std::string_view, std::string> paths;  // of the models that plugins added
  const auto known = paths.find(model.name);
  if (known != paths.end() && known->second == path) return;
  if (std::ranges::find(zoo(), model.name, &Model::name) != zoo().end())
    fail<UsageError>("--plugin {}: its model '{}' has the name of one of {}; rename it", path,
                     model.name, known == paths.end() ? "Warpstep's own" : known->second);
  paths.emplace(model.name, path);
  add_model(model);
}

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    fail<UsageError>("--plugin {}: there is no such file", path.string());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail<UsageError>("--plugin {}: it does not load: {}", path.string(), dlerror());
  const auto entry = reinterpret_cast<const Plugin* (*)()>(dlsym(library, "warpstep_plugin"));
  if (!entry)
    fail<UsageError>(
        "--plugin {}: this library has no WARPSTEP_PLUGIN(...) (models/plugin.h): it is no plugin",
        path.string());
  const Plugin& plugin = *entry();
  if (plugin.interface != plugin_interface())
    fail<UsageError>(
        "--plugin {}: it was compiled with the headers of another Warpstep; rebuild it with those "
        "of this one ({}, commit {})",
        path.string(), version(), commit());
  std::set<std::string_view> names;
  for (const Model& model : plugin.models)
    if (!names.insert(model.name).second)
      fail<UsageError>("--plugin {}: two of its models are called '{}'; rename one", path.string(),
                       model.name);
  for (const Model& model : plugin.models) add(model, path.string());
}

}  // namespace warpstep::models
