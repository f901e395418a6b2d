// What the machine did to a run's steps besides the run: other programs, clocks.
#pragma once

#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct Disturbance {
  double cores = 0;   // that the run might use; 0: not known
  double others = 0;  // cores that other programs used, the mean while the run stepped
  double stolen = 0;  // cores that other virtual machines were given, the same
  // The share of the steps' time that both may have cost: their cores less the idle ones. A step
  // whose threads wait for each other loses what the most disturbed of them does: at most all of a
  // core that is shared. Above 1 if others want more than a core.
  double lost = 0;
  // Of the multiprocessors of each GPU that the run computed on, in order; mean, 0: not sampled.
  std::vector<double> clocks_mhz;
};
// From the sampled metrics; zeros where they were not sampled.
Disturbance disturbance_of(const Session& session);

// How much slower than the program alone the steps of each run may have been, as a share of their
// time: by other programs, and by a clock below the highest mean of all the runs.
std::vector<double> lost_shares(const std::vector<Disturbance>& runs);

}  // namespace warpstep::profiler
