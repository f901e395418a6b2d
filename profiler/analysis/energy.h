// The energy of a step, from sampled powers.
#pragma once

#include <string>
#include <vector>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

struct EnergyRow {
  std::string source;  // of the metric "NAME power W": "gpu 0", "cpu"
  double joules = 0;   // per counted step
  double watts = 0;    // mean over the counted steps
};

// The integral of each sampled power over the counted steps: linear between samples, constant
// before the first and after the last. A step shorter than the samples' distance has the power
// around it.
std::vector<EnergyRow> energy_per_step(const View& view);

}  // namespace warpstep::profiler
