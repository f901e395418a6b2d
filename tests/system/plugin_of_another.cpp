// A plugin as of a Warpstep with other headers.
#include "models/plugin.h"

extern "C" const warpstep::models::Plugin* warpstep_plugin();
extern "C" const warpstep::models::Plugin* warpstep_plugin() {
  static const warpstep::models::Plugin plugin{.interface = 1, .models = {}};
  return &plugin;
}
