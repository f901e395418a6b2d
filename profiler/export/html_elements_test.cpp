// Tables and marks of the page, and what it says of what was not recorded.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/export/html.h"

namespace warpstep::profiler {
namespace {

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

}  // namespace
}  // namespace warpstep::profiler
