#include "models/plugin.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "models/checks.h"

namespace warpstep::models {
namespace {

void add(const Model& model, const std::string& path) {
  static std::map<std::string_view, std::string> paths;  // of the models that plugins added
  const auto known = paths.find(model.name);
  if (known != paths.end() && known->second == path) return;
  if (std::ranges::find(zoo(), model.name, &Model::name) != zoo().end())
    fail<UsageError>("--plugin {}: its model '{}' has the name of one of {}; rename it", path,
                     model.name, known == paths.end() ? "Warpstep's own" : known->second);
  add_model(model);
  paths.emplace(model.name, path);
}

}  // namespace

bool add_plugin(const PluginLibrary& library) {
  const Plugin* plugin = library.part<Plugin>("warpstep_plugin", plugin_interface());
  if (!plugin) return false;
  std::set<std::string_view> names;
  for (const Model& model : plugin->models) {
    if (!names.insert(model.name).second)
      fail<UsageError>("--plugin {}: two of its models are called '{}'; rename one", library.path(),
                       model.name);
    if (!has_builder(model))
      fail<UsageError>("--plugin {}: its model '{}' has no builder: {}", library.path(), model.name,
                       builder_hint);
  }
  for (const Model& model : plugin->models) add(model, library.path());
  return true;
}

}  // namespace warpstep::models
