// Why the trainer waits for data, and the settings of the loader that would end it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/loading.h"

namespace warpstep::profiler {

// What limits the workers.
enum class Bound : std::uint8_t {
  unknown,
  cpu,     // their own work
  io,      // reads
  asleep,  // neither reading nor on a core: in locks, sleeps, requests
  core,    // others have the cores that they want
};

struct Stall {
  bool is_stalled = false;  // waits of at least 2 % of a step
  std::uint64_t first_step = 0, last_step = 0;
  double wait_ns = 0, step_ns = 0;  // per step: waiting, and all of it
  double predicted_wait_ns = 0;     // replayed with the setting that ran, to judge the model
  double unexplained_ns = 0;        // of the step: what the replay of the run as it was lacks
  bool fits = true;                 // that is at most 10 % of the step: predictions hold
  std::string stage;                // the one with the largest share of the work
  double stage_share = 0;
  Bound bound = Bound::unknown;
  int workers_needed = 0;        // that hide it; 0: none do on these cores
  double step_with_them_ns = 0;  // with `best_workers` when none do
  double speedup = 0;            // of that against now
  // Where workers take cores from the kernels, what is best may not hide it all: the fewest workers
  // within 1 % of the shortest step.
  int best_workers = 0;
  double step_with_best_ns = 0;
  int prefetch_needed = 0;  // the option's smallest value that hides it with the workers there are;
                            // 0: none does
  // Of `stage`, with the workers there are; 0: no such speed-up suffices.
  double stage_speedup_needed = 0;
  // The curve: mean wait by workers 1, 2, ..., and by prefetch.
  std::vector<double> wait_by_workers_ns;
  std::vector<std::pair<int, double>> wait_by_prefetch_ns;
  std::string text;  // one line with all of this
};
Stall diagnose(const LoaderView& view, const View& source);

// "steps 412-420: waited 12.3 of 41.0 ms (30.0 %) for the loader; decode is 71.0 % of 164 ms worker
// time per batch, CPU-bound; 6 workers hide it (step 28.7 ms, 1.43x); staying at 4 workers, decode
// must get 1.73x faster."
std::string stall_text(const LoaderView& view, const Stall& stall);

}  // namespace warpstep::profiler
