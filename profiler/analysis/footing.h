// Whether two runs are on an equal footing: what differs in their stamps and may explain a change,
// by intent (options, another commit) or because the machine did.
#pragma once

#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct FootingDifference {
  std::string what;  // the field in the stamp: "precision", "cpu.clocks.0.governor"
  std::string before, after;

  std::string text() const { return what + ": " + before + " before, " + after + " after"; }
};

struct Footing {
  std::vector<FootingDifference> by_intent;   // options, data, version and commit
  std::vector<FootingDifference> by_machine;  // CPU, GPU, limits, clocks, CPUs, libraries, compiler
  std::vector<std::string> warnings;          // recorded in one of the runs only

  bool is_equal() const { return by_machine.empty(); }
};

// Throws UsageError that names both sides when devices, models or batches differ and `force` is
// false. Current clocks and the load are not compared: they differ from one moment to the next.
Footing compare_footing(const Session& before, const Session& after, bool force);

// "Not on equal footing: ...", to precede a verdict; empty if nothing differs by machine.
std::string footing_verdict(const Footing& footing);

}  // namespace warpstep::profiler
