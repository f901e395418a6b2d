// What the tests of findings share.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

// A session on a GPU with one window of ten steps of 1 ms, and an analysis that finds nothing.
struct Case {
  SessionBuilder builder;
  Analysis analysis;

  explicit Case(bool gpu = true) {
    if (gpu) builder.gpu();
    for (int i = 0; i < 10; ++i)
      builder.step(static_cast<std::uint64_t>(i + 1), 1000 * i, 1000 * (i + 1), 1000);
    builder.window(1, 10, 0, 10'000, true);
    builder.raw().stamp["options"] = {{"batch", 128}, {"precision", "bf16"}, {"log_every", 10}};
    builder.raw().loader = {{"batch", 128}};
    analysis.breakdown.step_ns = 1e6;
    analysis.breakdown.counted = 10;
    part(Category::kernel) = 1e6;
    analysis.loader.batch = 128;
    analysis.devices.push_back({.device = 0, .utilization = 1, .tensor_core_share = 1});
  }

  double& part(Category category) {
    return analysis.breakdown.mean[static_cast<std::size_t>(category)];
  }
  Json& options() { return builder.raw().stamp["options"]; }
  std::vector<Finding> findings() { return find_findings(builder.build(), analysis); }
  std::optional<Finding> finding(const std::string& key) {
    for (const Finding& finding : findings())
      if (finding.key == key) return finding;
    return std::nullopt;
  }
};

inline std::vector<std::string> keys(const std::vector<Finding>& findings) {
  std::vector<std::string> keys;
  for (const Finding& finding : findings) keys.push_back(finding.key);
  return keys;
}

}  // namespace warpstep::profiler::testing
