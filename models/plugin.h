// A library with models of a user's own: `warpstep train MODEL --plugin libmine.so`, see
// docs/plugins.md.
#pragma once

#include "engine/core/plugin.h"
#include "models/zoo.h"

namespace warpstep::models {

// A plugin must be compiled with the headers of the Warpstep that loads it. What is mixed are the
// version, the sizes of what is exchanged and the names of all ops in their order.
constexpr std::uint64_t plugin_interface(std::uint64_t minor = version_minor) {
  // 1 counts changes within a version that show in neither, as in an enumeration.
  std::uint64_t mixed = mix_interface(interface_of_version(minor), 1);
#define WARPSTEP_MIX_NAME(Op) \
  for (const char letter : #Op) mixed = mix_interface(mixed, static_cast<unsigned char>(letter));
  WARPSTEP_EACH_OP(WARPSTEP_MIX_NAME)
#undef WARPSTEP_MIX_NAME
  for (const std::size_t size :
       {sizeof(Model), sizeof(Tokens), sizeof(Settings), sizeof(Graph), sizeof(Node), sizeof(Value),
        sizeof(AnyOp), std::variant_size_v<OpVariant>, sizeof(Parameter)})
    mixed = mix_interface(mixed, size);
  return mixed;
}

struct Plugin {
  std::uint64_t interface = plugin_interface();
  std::span<const Model> models{};
};

// For load_plugin(): adds the library's models to the zoo. Throws UsageError if it was compiled for
// another Warpstep or has a model whose name is taken or that has no builder: each time.
bool add_plugin(const PluginLibrary& library);

}  // namespace warpstep::models

// In one source file of the plugin: WARPSTEP_PLUGIN(models), where `models` is a static array of
// Model.
#define WARPSTEP_PLUGIN(array)                                       \
  extern "C" const warpstep::models::Plugin* warpstep_plugin();      \
  extern "C" const warpstep::models::Plugin* warpstep_plugin() {     \
    static const warpstep::models::Plugin plugin{.models = (array)}; \
    return &plugin;                                                  \
  }
