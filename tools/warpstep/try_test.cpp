#include "tools/warpstep/try.h"

#include <gtest/gtest.h>

#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

using data::testing::put;
using data::testing::TemporaryFolder;

profiler::Analysis advising(const std::vector<std::string>& flags) {
  profiler::Analysis analysis;
  for (const std::string& flag : flags) analysis.findings.push_back({.key = "k", .flag = flag});
  return analysis;
}

TEST(Try, NamesTheFirstAdviceThatItCanMeasure) {
  const TemporaryFolder folder;
  const std::string run = folder / "a run";
  put(run + "/config.json", std::string("{}"));
  EXPECT_EQ(
      line_that_tries(
          advising({"", "warpstep data pack x y", "--pin-cpus auto --threads 3", "--workers 2"}),
          run),
      "To measure what that changes: warpstep try '" + run + "' --pin-cpus auto --threads 3\n");
  EXPECT_EQ(line_that_tries(advising({"--checkpoint-every 100", "--eval-every 7"}), run), "")
      << "not of a step";
  profiler::Analysis outside = advising({"--log-every 100"});
  outside.findings.front().outside_steps = true;
  EXPECT_EQ(line_that_tries(outside, run), "");
}

TEST(Try, NamesNothingWithoutARunOfOneProcess) {
  const TemporaryFolder folder;
  const profiler::Analysis analysis = advising({"--workers 2"});
  EXPECT_EQ(line_that_tries(analysis, folder.path()), "") << "a session alone";
  put(folder / "config.json", std::string("{}"));
  EXPECT_NE(line_that_tries(analysis, folder.path()), "");
  put(folder / "ranks/1/config.json", std::string("{}"));
  EXPECT_EQ(line_that_tries(analysis, folder.path()), "");
}

}  // namespace
}  // namespace warpstep::tools
