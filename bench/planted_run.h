// A training run with a planted bottleneck, its profile, and the profiler's findings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "profiler/analysis/analysis.h"

namespace warpstep::bench {

// Times of the planted parts; the model itself takes tens of microseconds.
struct Plant {
  std::uint64_t read_us = 0;       // a sample's fetch sleeps, as for a slow disk
  std::uint64_t transform_us = 0;  // a sample's transform computes
  std::uint64_t step_us = 0;       // a step sleeps, as for a device
  std::uint64_t observer_us = 0;   // a wait after each step, for example to print a loss
  int workers = 1;
  int prefetch = 3;
  std::int64_t batch = 16;
  int threads = 1;        // of the kernels
  int noise_threads = 0;  // of another program, which computes all the time
  std::uint64_t steps = 60;
};

struct PlantedResult {
  profiler::Session session;
  profiler::Analysis analysis;
  double wait_ns = 0, step_ns = 0;  // per step, as the trainer measured it, over the second half

  bool names(const std::string& finding) const;
};

PlantedResult run_planted(const Plant& plant, const std::string& folder);

}  // namespace warpstep::bench
