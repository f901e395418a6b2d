// A plugin as of a Warpstep with other headers: of models, or of data.
#if WITH_MODELS
#include "models/plugin.h"
using warpstep::models::Plugin;
#define ENTRY warpstep_plugin
#else
#include "data/load/plugin.h"
using warpstep::data::Plugin;
#define ENTRY warpstep_data_plugin
#endif

extern "C" const Plugin* ENTRY();
extern "C" const Plugin* ENTRY() {
  static const Plugin plugin{.interface = 1};
  return &plugin;
}
