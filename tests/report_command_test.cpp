// `warpstep report` and `warpstep replay` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/core/file.h"
#include "profiler/sources/testing_tree.h"
#include "tests/command_output.h"
#include "tests/source_file.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReportCommand : public testing::Test {
 protected:
  fs::path path(const std::string& name) const { return fs::path(folder_.root()) / name; }

  profiler::testing::Tree folder_;
};

// A record of an H200, without the device's description, as older versions wrote it.
TEST_F(ReportCommand, ReadsWhatReplayWrites) {
  const std::string raw = testing_support::source_file("profiler/testdata/cifar10cnn-h200.cupti"),
                    session = path("replayed.prof").string(), trace = path("trace").string();
  const Result replayed = run_command("replay", raw + " " + session, false);
  if (run_command("replay", raw + " " + session, true).text.find("without CUPTI") !=
      std::string::npos)
    GTEST_SKIP() << "built without CUPTI";
  EXPECT_EQ(replayed.code, 0);
  EXPECT_THAT(replayed.text, HasSubstr("539 activities"));
  const Result report = run_command("report", session, false);
  EXPECT_EQ(report.code, 0);
  EXPECT_THAT(report.text,
              AllOf(HasSubstr("GPU 0: kernels run 88.5 % of the steps' time, 69.5 % of"),
                    HasSubstr("a step is what one graph"), Not(HasSubstr("occupancy"))));
  EXPECT_TRUE(fs::exists(path("replayed.html")));
  const Result exported = run_command("export", session + " --out " + trace, true);
  EXPECT_EQ(exported.code, 0) << exported.text;
  const Result checked = run_command("check-trace", trace + "/kineto/*", false);
  EXPECT_EQ(checked.code, 0) << checked.text;
}

}  // namespace
}  // namespace warpstep
