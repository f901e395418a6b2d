// Runs with everything that a report shows, by hand: a small CNN that waits for its loader on a
// CPU, and the same on an H200.
#pragma once

#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/compare.h"

namespace warpstep::profiler::testing {

struct Example {
  Session session;
  Analysis analysis;
};

struct ExampleOptions {
  std::uint64_t steps = 60;     // of the run
  std::uint64_t recorded = 20;  // of these, with spans: steps 8 and on
  std::int64_t batch = 128;
  int workers = 4;
  int blocks = 7;  // of the network, each three layers
};
Example cpu_example(const ExampleOptions& options = {});
Example gpu_example(const ExampleOptions& options = {});
Comparison example_comparison();

// The analysis of testing_analysis.h's sessions.

struct ExampleCall {
  std::string title, layer, op, phase;
  double weight = 1;  // of its time
  double flops = 0, bytes = 0;
};

void fill_analysis(const Session& session, const std::vector<ExampleCall>& calls,
                   Analysis& analysis);

}  // namespace warpstep::profiler::testing
