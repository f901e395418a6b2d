#include "tools/warpstep/repeat.h"

#include <gtest/gtest.h>

#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

using data::testing::put;
using data::testing::TemporaryFolder;

void put_summary(const std::string& run, const std::string& figures) {
  put(run + "/summary.json",
      R"({"steps": 12, "outcome": "finished", "images_per_second": 9, "step_time_share": )"
      R"({"data": 0, "copies": 0, "kernels": 1, "cpu": 0, "other": 0}, )" +
          figures + "}");
}

// By hand: 10 and 13 are 1.5 from their mean, so that the squares add up to 4.5, of which n - 1 = 1
// makes a deviation of 2.12, 18 % of 11.5; 0.5 and 0.75: 0.177 of 0.625; 2 and 1: 0.707 of 1.5.
TEST(Repeat, PrintsTheSpreadOfItsRuns) {
  const TemporaryFolder folder;
  put_summary(folder / "1", R"("step_ms": 10, "test": {"accuracy": 0.5, "loss": 2})");
  put_summary(folder / "2", R"("step_ms": 13, "test": {"accuracy": 0.75, "loss": 1})");
  EXPECT_EQ(spread_of_runs(2, folder.path()),
            "  step       mean 11.5 ms, 10 to 13; sd 18 %\n"
            "  accuracy   mean 62.5 %, 50 to 75; sd 28 %\n"
            "  loss       mean 1.5, 1 to 2; sd 47 %\n");
  put_summary(folder / "3", R"("step_ms": 16, "test": null)");
  const std::string three = spread_of_runs(3, folder.path());
  EXPECT_EQ(three.substr(0, three.find('\n')), "  step       mean 13 ms, 10 to 16; sd 23 %")
      << "the squares add up to 18, of which n - 1 = 2 makes a deviation of 3";
}

TEST(Repeat, LeavesOutWhatNoRunHas) {
  const TemporaryFolder folder;
  put_summary(folder / "1", R"("step_ms": 10, "test": {"loss": 2})");
  EXPECT_EQ(spread_of_runs(2, folder.path()),
            "  step       mean 10 ms, 10 to 10; sd 0 %\n"
            "  loss       mean 2, 2 to 2; sd 0 %\n");
}

TEST(Repeat, GivesEachRunAFolderOfItsOwn) {
  EXPECT_EQ(
      arguments_of_run({"warpstep", "train", "mlp", "--repeat", "3", "--out=runs/x", "--lr", "0.1"},
                       "runs/x", 2),
      (std::vector<std::string>{"warpstep", "train", "mlp", "--lr", "0.1", "--repeat", "1", "--out",
                                "runs/x/2"}));
}

}  // namespace
}  // namespace warpstep::tools
