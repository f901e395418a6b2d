// A library with transforms and formats of a user's own: `warpstep train MODEL --data MINE
// --transforms mine,flip --plugin libmine.so`, see docs/plugins.md.
#pragma once

#include <span>

#include "data/formats/formats.h"
#include "data/transforms/transform.h"
#include "engine/core/plugin.h"

namespace warpstep::data {

// A plugin must be compiled with the headers of the Warpstep that loads it; the version and
// the sizes of what is exchanged are mixed.
constexpr std::uint64_t plugin_interface(std::uint64_t minor = version_minor) {
  // 1 counts changes within a version that show in no size, as of a virtual function.
  std::uint64_t mixed = mix_interface(interface_of_version(minor), 1);
  for (const std::size_t size :
       {sizeof(Sample), sizeof(Shape), sizeof(Scratch), sizeof(OpenOptions), sizeof(Format),
        sizeof(Draw), sizeof(Geometry), sizeof(RowImage), sizeof(RowPlan), sizeof(PixelPlan),
        sizeof(TransformArguments)})
    mixed = mix_interface(mixed, size);
  return mixed;
}

struct PluginTransform {  // the arguments of a TransformKind
  const char* name;
  const char* usage;
  const char* what;
  TransformKind::Make make;
};

struct Plugin {
  std::uint64_t interface = plugin_interface();
  std::span<const PluginTransform> transforms{};
  std::span<const Format> formats{};
};

// For load_plugin(): adds the library's transforms to those of recipes and its formats to those of
// open(). Throws UsageError if it was compiled for another Warpstep or has a transform whose name
// is taken.
bool add_plugin(const PluginLibrary& library);

}  // namespace warpstep::data

// In one source file of the plugin: WARPSTEP_DATA_PLUGIN(.transforms = mine, .formats = others),
// both of them static arrays, or one of the two alone.
#define WARPSTEP_DATA_PLUGIN(...)                                   \
  extern "C" const warpstep::data::Plugin* warpstep_data_plugin();  \
  extern "C" const warpstep::data::Plugin* warpstep_data_plugin() { \
    static const warpstep::data::Plugin plugin{__VA_ARGS__};        \
    return &plugin;                                                 \
  }
