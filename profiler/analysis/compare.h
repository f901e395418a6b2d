// Compares two runs: what changed, and how certain that is.
#pragma once

#include <string>
#include <vector>

#include "profiler/analysis/footing.h"
#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct CompareOptions {
  bool force = false;               // compare runs on different devices
  double least_share = 0.01;        // smaller changes are not significant
  double false_discoveries = 0.05;  // Benjamini-Hochberg's q
  int resamples = 2000;             // of the bootstrap, whose seed is fixed
};

struct Change {
  std::string what;  // "step", "conv1/conv", "data wait"
  std::string phase;
  double before_ns = 0, after_ns = 0;  // medians per step
  double low = 0, high = 0;            // 95 % interval of (after - before), ns
  double p = 1;
  bool is_significant = false;  // the interval excludes 0, large enough, and survives the family
};

struct Comparison {
  Footing footing;                    // what differs in the stamps
  std::vector<std::string> warnings;  // of the measurement: too few steps, lost records, drift
  std::vector<Change> changes;        // "step" first, then parts, then calls: largest first
  // The step's change as a sum: significant parts, then the rest.
  std::vector<std::pair<std::string, double>> waterfall;
  double least_p =
      0.0005;           // tables show none below: 1 / resamples, the resolution of the bootstrap
  std::string verdict;  // one sentence; before it one on an unequal footing
};
// Throws UsageError when devices, models or batches differ, unless forced, and when there are too
// few steps.
Comparison compare(const Session& before, const Session& after, const CompareOptions& options = {});
// Odd against even steps of one run: the noise floor.
Comparison compare_halves(const Session& session, const CompareOptions& options = {});
Table to_table(const Comparison& comparison);

}  // namespace warpstep::profiler
