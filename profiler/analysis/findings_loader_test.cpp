#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/testing_findings.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::keys;
using ::testing::Not;
using testing::SessionBuilder;

// Which takes its time for a transform.
SessionBuilder blurring_loader(double step_us) {
  testing::LoaderCase c = testing::hidden_loader(step_us);
  c.stages = {{"copy", 100}, {"blur", 1'000}};
  c.normalize = "device";
  return testing::loader_session(c);
}

TEST(LoaderFindings, ATransformThatTakesAHostsCoresIsNamed) {
  SessionBuilder builder = blurring_loader(20'000);
  builder.raw().loader["transforms"] = "blur,flip";
  const std::vector<Finding> findings = analyse(builder.build()).findings;
  const auto found = std::ranges::find(findings, "loader-contention", &Finding::key);
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->flag, "--transforms flip");
  EXPECT_THAT(found->advice, HasSubstr("leave blur out"));
  EXPECT_GT(found->gain_ns, 0);
  builder.raw().loader["transforms"] = "flip";  // what takes the time is no option
  EXPECT_THAT(keys(analyse(builder.build()).findings), Not(Contains("loader-contention")));
  SessionBuilder idle = blurring_loader(200'000);
  idle.raw().loader["transforms"] = "blur,flip";
  EXPECT_THAT(keys(analyse(idle.build()).findings), Not(Contains("loader-contention")));
}

TEST(LoaderFindings, WhatIsInNoStageIsNamedToo) {
  const auto evidence = [](SessionBuilder& builder) {
    const std::vector<Finding> findings = analyse(builder.build()).findings;
    const auto found = std::ranges::find(findings, "data-wait", &Finding::key);
    return found == findings.end() ? "" : found->evidence;
  };
  SessionBuilder builder = testing::loader_session(
      {.workers = 1, .step_us = 1'000, .stages = {{"read", 200}, {"decode", 800}}});
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, decode 80.0 %"));
  EXPECT_THAT(evidence(builder), Not(HasSubstr("in no stage")));
  Session& session = builder.raw();
  std::erase_if(session.spans,
                [&](const Span& span) { return session.name(span.name) == "decode"; });
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, in no stage 80.0 %"));
  std::erase_if(session.spans, [&](const Span& span) { return session.name(span.name) == "read"; });
  EXPECT_THAT(evidence(builder), HasSubstr("worker time per batch: in no stage 100.0 %"));
}

}  // namespace
}  // namespace warpstep::profiler
