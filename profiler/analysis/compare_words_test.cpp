// How a comparison words what it found.
#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/analysis/compare.h"
#include "profiler/analysis/testing_compare.h"

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using testing::layer;
using testing::planned;

TEST(CompareWords, CallsMostOfItOnlyWhatIsMoreThanHalf) {
  EXPECT_THAT(compare(planned({}, 1), planned({.slower = 1.5, .wait_us = 100}, 2)).verdict,
              HasSubstr("; most of it: layer2/conv forward"));
  // 250 us of the call, 230 and 200 us of the others: the largest has less than half.
  Session after = planned({.slower = 1.5, .wait_us = 230}, 2);
  for (Step& step : after.steps) step.other_ns += 200'000, step.begin_ns -= 200'000;
  EXPECT_THAT(compare(planned({}, 1), after).verdict,
              HasSubstr("; the largest part: layer2/conv forward"));
}

TEST(CompareWords, NamesPhasesAsTheReportDoesAndOnce) {
  const auto with = [](double slower, std::uint32_t seed) {
    Session session = planned({.slower = slower}, seed);
    session.program["calls"][2] = {{"title", "fc1/linear.wgrad"}, {"phase", "wgrad"}};
    session.program["calls"][3]["phase"] = "dgrad";
    return session;
  };
  const Comparison result = compare(with(1, 1), with(1.5, 2));
  EXPECT_THAT(result.verdict, HasSubstr("most of it: fc1/linear.wgrad, +2"));
  const auto phase = [&](const std::string& what) {
    return std::find_if(result.changes.begin(), result.changes.end(),
                        [&](const Change& c) { return c.what == what; })
        ->phase;
  };
  Session before = with(1, 1), after = with(1.5, 2);
  for (Session* session : {&before, &after})
    session->program["calls"][2] = {{"title", "update_all"}, {"phase", "update"}};
  EXPECT_THAT(compare(before, after).verdict, HasSubstr("most of it: update_all, +2"));
  EXPECT_EQ(phase("fc1/linear.wgrad"), "weight_grad");
  EXPECT_EQ(phase(layer(3)), "data_grad");
}

}  // namespace
}  // namespace warpstep::profiler
