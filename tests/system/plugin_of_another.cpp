// A plugin as of the next minor version, whose headers are otherwise the same: of models, or of
// data.
#if WITH_MODELS
#include "models/plugin.h"
using namespace warpstep::models;
#define ENTRY warpstep_plugin
#else
#include "data/load/plugin.h"
using namespace warpstep::data;
#define ENTRY warpstep_data_plugin
#endif

extern "C" const Plugin* ENTRY();
extern "C" const Plugin* ENTRY() {
  static const Plugin plugin{.interface = plugin_interface(warpstep::version_minor + 1)};
  return &plugin;
}
