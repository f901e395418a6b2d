// Which steps have lanes, and what the strip above them says of it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "profiler/export/export.h"
#include "profiler/export/html.h"
#include "profiler/export/testing_analysis.h"

namespace warpstep::profiler {
namespace {

using testing::Example;
using ::testing::HasSubstr;

// One thread, and a span of 10 ns in each of `steps` steps of 1 us, `each` times.
Session short_steps(std::uint64_t steps, std::uint64_t each) {
  Session session;
  session.threads.push_back({.name = "main"});
  session.names = {{"conv", Kind::call}, {"epoch", Kind::range}};
  session.windows.push_back({.first_step = 1, .last_step = steps, .complete = 1});
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const std::uint64_t begin = 1000 * step;
    session.steps.push_back({.step = step, .begin_ns = begin, .end_ns = begin + 1000});
    for (std::uint64_t i = 0; i < each; ++i)
      session.spans.push_back({.begin_ns = begin + 20 * i, .end_ns = begin + 20 * i + 10});
  }
  return session;
}

std::vector<std::uint64_t> numbers(const html::Lanes& lanes) {
  std::vector<std::uint64_t> steps;
  for (const html::LaneStep& step : lanes.steps) steps.push_back(step.step);
  return steps;
}

TEST(ChosenLanes, AreOfThePreferredStepsFirst) {
  constexpr std::uint64_t steps = html::bars_per_page / 40 + 500;
  const Session session = short_steps(steps, 40);
  const std::vector<std::uint64_t> first = numbers(html::find_lanes(session, {}));
  EXPECT_EQ(first.size(), html::bars_per_page / 40);
  EXPECT_EQ(first.back(), first.size());
  const html::Lanes lanes = html::find_lanes(session, {}, {7, steps - 1, steps});
  const std::vector<std::uint64_t> some = numbers(lanes);
  EXPECT_EQ(some.size(), first.size());
  EXPECT_EQ(lanes.left_out, 500U);
  EXPECT_TRUE(std::ranges::is_sorted(some));
  EXPECT_EQ(some[some.size() - 3], first.size() - 2);
  EXPECT_EQ(some[some.size() - 2], steps - 1);
  EXPECT_EQ(some.back(), steps);
  for (const html::LaneStep& step : lanes.steps) EXPECT_EQ(step.bars[0].size(), 40U) << step.step;
}

TEST(ChosenLanes, AreInOneOrderWhicheverThreadBeganFirst) {
  Session session = short_steps(2, 1);
  for (const char* const name : {"loader 10", "test loader 0", "loader 2", "idle", "loader 2"}) {
    session.threads.push_back(
        {.system = static_cast<std::uint32_t>(session.threads.size()), .name = name});
    const auto thread = static_cast<std::uint32_t>(session.threads.size() - 1);
    if (std::string_view(name) == "idle") continue;
    session.spans.insert(session.spans.begin(),
                         {.begin_ns = 1010, .end_ns = 1020, .thread = thread});
  }
  EXPECT_THAT(
      html::find_lanes(session, {}).lanes,
      ::testing::ElementsAre("main", "loader 2", "loader 2 (5)", "loader 10", "test loader 0"));
}

TEST(ChosenLanes, HaveWhatBeganInAnEarlierStep) {
  Session session = short_steps(2000, 40);
  session.spans.insert(session.spans.begin(), {.begin_ns = 500, .end_ns = 9'000'000, .name = 1});
  const html::Lanes lanes = html::find_lanes(session, {}, {3, 1999});
  EXPECT_GT(lanes.left_out, 0U);
  for (const html::LaneStep& step : lanes.steps) {
    EXPECT_EQ(step.bars[0].size(), 41U) << step.step;
    EXPECT_EQ(lanes.names[step.bars[0][0].name], "epoch");
    EXPECT_EQ(step.bars[0][0].end_ns, 1000U);
  }
}

// Their bars are not even looked for.
TEST(ChosenLanes, TakeNothingFromTheStepsLeftOut) {
  const Session session = short_steps(2000, 40);
  LoaderView loader;
  loader.queue = {{1500, 2}, {1'999'500, 9}};
  html::Lanes lanes = html::find_lanes(session, loader);
  EXPECT_GT(lanes.left_out, 0U);
  EXPECT_EQ(lanes.most_ready, 2U);
  lanes = html::find_lanes(session, loader, {1999});
  EXPECT_EQ(lanes.most_ready, 9U);
  EXPECT_EQ(lanes.steps.back().step, 1999U);
  EXPECT_EQ(lanes.steps.back().queue,
            (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 2}, {500, 9}}));
}

TEST(ChosenLanes, AreThoseOfTheStrip) {
  const Example example =
      testing::gpu_example({.steps = 410, .recorded = 400, .batch = 512, .workers = 8});
  const std::string page = html_report(example.session, example.analysis);
  const std::size_t strip = page.find("id=\"strip\""), end = page.find("</figure>", strip);
  const std::string chart = page.substr(strip, end - strip);
  EXPECT_THAT(chart, HasSubstr(" Choose one to see its lanes, which "));
  EXPECT_THAT(chart, HasSubstr("; no lanes</title>"));
  const std::size_t data = page.find("id=\"lanes-data\">") + 16;
  const Json lanes = Json::parse(page.substr(data, page.find("</script>", data) - data));
  ASSERT_FALSE(lanes["steps"].empty());
  for (const Json& step : lanes["steps"])
    EXPECT_THAT(chart, HasSubstr(fmt::format("data-step=\"{}\"", step["step"].get<int>())));
  const Example few = testing::gpu_example();
  EXPECT_THAT(html_report(few.session, few.analysis), HasSubstr(" Choose one to see its lanes.<"));
}

TEST(ChosenLanes, AreOfWindowsInWhichAGpuWasNotTraced) {
  Example example = testing::gpu_example();
  for (StepParts& step : example.analysis.breakdown.steps) step.from_spans = false;
  const std::string page = html_report(example.session, example.analysis);
  EXPECT_THAT(page, HasSubstr("<h3>Steps 8 to 27, one by one</h3>"));
  EXPECT_THAT(page, HasSubstr(" Choose one to see its lanes.<"));
}

}  // namespace
}  // namespace warpstep::profiler
