#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SessionBuilder;

TEST(LoaderFindings, WhatIsInNoStageIsNamedToo) {
  const auto evidence = [](SessionBuilder& builder) {
    const std::vector<Finding> findings = analyse(builder.build()).findings;
    const auto found = std::ranges::find(findings, "data-wait", &Finding::key);
    return found == findings.end() ? "" : found->evidence;
  };
  SessionBuilder builder = testing::loader_session(
      {.workers = 1, .step_us = 1'000, .stages = {{"read", 200}, {"decode", 800}}});
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, decode 80.0 %"));
  EXPECT_THAT(evidence(builder), Not(HasSubstr("outside")));
  Session& session = builder.raw();
  std::erase_if(session.spans,
                [&](const Span& span) { return session.name(span.name) == "decode"; });
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, outside of these 80.0 %"));
}

}  // namespace
}  // namespace warpstep::profiler
