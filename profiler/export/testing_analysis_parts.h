// The analysis of testing_analysis.h's sessions.
#pragma once

#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"

namespace warpstep::profiler::testing {

struct ExampleCall {
  std::string title, layer, op, phase;
  double weight = 1;  // of its time
  double flops = 0, bytes = 0;
};

void fill_analysis(const Session& session, const std::vector<ExampleCall>& calls,
                   Analysis& analysis);

}  // namespace warpstep::profiler::testing
