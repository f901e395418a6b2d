// Tables and marks of the page, and what it says of what was not recorded.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/export/export.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"
#include "profiler/export/testing_analysis.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::Example;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PageTable, NamesJsonOnlyWhereItHasTheRows) {
  Table data{.key = "calls", .title = "Calls", .columns = {{"a", "a"}}};
  data.rows.assign(html::table_rows, {std::int64_t{1}});
  EXPECT_THAT(html::table(data), Not(HasSubstr("The first")));
  data.rows.push_back({std::int64_t{1}});
  EXPECT_THAT(html::table(data), HasSubstr("The first 500 of 501 rows; --json has all."));
  data.key = "memory_by_call";
  EXPECT_THAT(html::table(data), HasSubstr("The first 500 of 501 rows."));
  data.key = "compare";
  EXPECT_THAT(html::table(data), HasSubstr("501 rows; --json has all."));
}

TEST(PageTable, MarksTextThatIsNotKnown) {
  const Table data{.key = "calls",
                   .title = "Calls",
                   .columns = {{"layer", "layer"}, {"bound", "bound by"}, {"ns", "time", Unit::ns}},
                   .rows = {{Cell(), Cell(), 1000.0}, {"conv1", "compute", Cell()}}};
  EXPECT_THAT(html::table(data),
              AllOf(HasSubstr("<th scope=\"row\" data-v=\"\">-</th><td data-v=\"\">-</td>"),
                    HasSubstr("<th scope=\"row\">conv1</th><td>compute</td>"),
                    HasSubstr("data-v=\"\">-</td></tr>")));
}

Session with_phases(std::size_t evaluations, std::size_t checkpoints) {
  Session session;
  session.names = {{"evaluation", Kind::range}, {"checkpoint", Kind::range}};
  for (std::size_t i = 0; i < std::max(evaluations, checkpoints); ++i) {
    const std::uint64_t at = 1000 * (i + 1);
    if (i < evaluations) session.phases.push_back({.begin_ns = at, .end_ns = at + 100, .name = 0});
    if (i < checkpoints)
      session.phases.push_back({.begin_ns = at + 200, .end_ns = at + 300, .name = 1});
  }
  return session;
}

TEST(RunMarks, AreOfTheWholeRunAndOfBothKinds) {
  const Session session = with_phases(5000, 300);
  const std::vector<html::RunMark> marks = html::run_marks_of(session);
  EXPECT_EQ(std::ranges::count_if(marks, &html::RunMark::is_evaluation), 200);
  EXPECT_EQ(marks.size(), 400U);
  EXPECT_TRUE(std::ranges::is_sorted(marks, {},
                                     [](const html::RunMark& mark) { return mark.time.begin_ns; }));
  EXPECT_EQ(marks.front().time.begin_ns, 1000U);
  EXPECT_EQ(marks.back().time.begin_ns, 5'000'000U);
  std::uint64_t before = 0;
  for (const html::RunMark& mark : marks)
    if (mark.is_evaluation) {
      EXPECT_LE(mark.time.begin_ns - before, 26'000U);
      before = mark.time.begin_ns;
    }
  EXPECT_EQ(html::run_marks_of(with_phases(200, 3)).size(), 203U);
}

TEST(RunMarks, AreOfWindowsToTheRunsEnd) {
  Session session;
  for (std::uint64_t i = 1; i <= 1000; ++i) session.windows.push_back({.first_step = i});
  const std::vector<Window> marked = html::marked_windows(session);
  EXPECT_EQ(marked.size(), 200U);
  EXPECT_EQ(marked.front().first_step, 1U);
  EXPECT_EQ(marked.back().first_step, 1000U);
}

Example nothing_recorded(Example example, const char* level, const char* schedule) {
  Analysis& analysis = example.analysis;
  for (CallRow& call : analysis.work.calls)
    call.count = call.total_ns = 0, call.ns = call.p95_ns = call.share = 0;
  analysis.findings.clear();
  for (StepParts& step : analysis.breakdown.steps) step.from_spans = false;
  analysis.breakdown.from_spans = false;
  example.session.windows.clear();
  example.session.activities.clear();
  example.session.stamp["profiler"] = {{"level", level}, {"schedule", schedule}};
  return example;
}

constexpr const char* too_short =
    "no window of --profile-schedule skip_first=5 has ended yet, or the run was too short for one: "
    "use smaller numbers in it, or more steps.";

TEST(NotRecorded, AdvisesNoOptionThatTheRunHad) {
  const Example cpu = nothing_recorded(testing::cpu_example(), "spans", "skip_first=5");
  EXPECT_EQ(nothing_found(cpu.session, cpu.analysis),
            std::string("Calls were not recorded: ") + too_short);
  std::string page = html_report(cpu.session, cpu.analysis);
  EXPECT_THAT(page, AllOf(HasSubstr("layers and calls were not recorded: no window of"),
                          HasSubstr("No lanes: no step was recorded with spans: no window of"),
                          Not(HasSubstr("--profile spans"))));
  const Example gpu = nothing_recorded(testing::gpu_example(), "deep", "skip_first=5");
  EXPECT_EQ(nothing_found(gpu.session, gpu.analysis),
            std::string("Kernels were not recorded: ") + too_short);
  page = html_report(gpu.session, gpu.analysis);
  EXPECT_THAT(page, AllOf(HasSubstr("calls and kernels were not recorded: no window of"),
                          HasSubstr("activities is complete: no window of"),
                          Not(HasSubstr("--profile deep")), Not(HasSubstr("--profile spans"))));
}

TEST(NotRecorded, AdvisesTheLevelThatRecordsIt) {
  const Example cpu = nothing_recorded(testing::cpu_example(), "steps", "every step's parts");
  EXPECT_EQ(nothing_found(cpu.session, cpu.analysis),
            "Calls were not recorded; --profile spans records them.");
  const Example gpu = nothing_recorded(testing::gpu_example(), "spans", "skip_first=5");
  EXPECT_EQ(nothing_found(gpu.session, gpu.analysis),
            "Kernels were not recorded; --profile deep records them.");
  EXPECT_THAT(html_report(gpu.session, gpu.analysis),
              AllOf(HasSubstr("<code>--profile deep</code>"),
                    HasSubstr("No lanes: no step was recorded with spans: no window of")));
}

TEST(NotRecorded, SaysThatEpochsAreShort) {
  const Example cpu = nothing_recorded(testing::cpu_example(), "deep", "wait=90,per=epoch");
  EXPECT_EQ(
      why_none(cpu.session, "spans"),
      "no window of --profile-schedule wait=90,per=epoch has ended yet, or each epoch was too "
      "short for one: use smaller numbers in it, or per=run");
}

}  // namespace
}  // namespace warpstep::profiler
