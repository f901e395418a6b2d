#include "data/load/plugin.h"

#include <algorithm>
#include <deque>
#include <set>

#include "engine/core/error.h"

namespace warpstep::data {

bool add_plugin(const PluginLibrary& library) {
  const Plugin* plugin = library.part<Plugin>("warpstep_data_plugin", plugin_interface());
  if (!plugin) return false;
  static std::set<std::string> loaded;
  if (loaded.contains(library.path())) return true;
  const auto& known = TransformKind::all();
  static std::deque<TransformKind> kinds;  // which stay where they are
  for (const PluginTransform& added : plugin->transforms) {
    if (std::ranges::any_of(known, [&](const TransformKind* kind) {
          return std::string_view(kind->name) == added.name;
        }))
      fail<UsageError>("--plugin {}: its transform '{}' has the name of another; rename it",
                       library.path(), added.name);
    kinds.emplace_back(added.name, added.usage, added.what, added.make);
  }
  for (const Format& format : plugin->formats) add_format(format);
  loaded.insert(library.path());
  return true;
}

}  // namespace warpstep::data
