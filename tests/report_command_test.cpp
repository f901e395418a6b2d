// `warpstep report` and `warpstep replay` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/file.h"
#include "profiler/session/session_file.h"
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

  // A run of two steps without spans.
  fs::path run_of_two_steps() const {
    fs::create_directories(path("run"));
    profiler::Session session;
    for (std::uint64_t i = 1; i <= 2; ++i)
      session.steps.push_back({.step = i,
                               .epoch = 1,
                               .begin_ns = i * 1'000'000,
                               .end_ns = (i + 1) * 1'000'000,
                               .kernels_ns = 1'000'000});
    profiler::SessionWriter writer(path("run/session.prof"));
    writer.write(session);
    writer.close();
    return path("run");
  }

  profiler::testing::Tree folder_;
};

TEST_F(ReportCommand, NeedsNoPage) {
  const fs::path run = run_of_two_steps();
  fs::create_directories(run / "report.html");  // cannot be replaced by a file
  const Result text = run_command("report", run.string(), false);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, HasSubstr("1.00 ms"));
  const Result json = run_command("report", run.string() + " --json", false);
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(nlohmann::json::parse(json.text).at("tables").at("steps").size(), 2U);
  EXPECT_THAT(run_command("report", run.string(), true).text,
              AllOf(HasSubstr("warning: the page was not written"), Not(HasSubstr("wrote"))));
  const std::string named = run.string() + " -o " + (run / "report.html").string();
  EXPECT_EQ(run_command("report", named, false).code, 1);
  EXPECT_THAT(run_command("report", named, true).text, HasSubstr("report.html: is a directory"));
}

TEST_F(ReportCommand, KeepsTheProfileThatItReads) {
  const fs::path run = run_of_two_steps(), session = run / "session.prof";
  const std::string before = read_file(session);
  for (const auto& [command, option] : {std::pair("report", " -o "), {"ranks", " --perfetto "}}) {
    const std::string line = run.string() + option + (run / "../run/session.prof").string();
    const Result refused = run_command(command, line, true);
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_THAT(refused.text, HasSubstr("session.prof: is the profile that is read; write to "));
    EXPECT_TRUE(read_file(session) == before) << command;
  }
  fs::copy_file(session, run / "named.html");  // whose page would have its name
  EXPECT_EQ(run_command("report", (run / "named.html").string(), true).code, 2);
  EXPECT_TRUE(read_file(run / "named.html") == before);
}

TEST_F(ReportCommand, ExportsIntoNoLink) {
  const fs::path run = run_of_two_steps(), other = path("other"), trace = run / "trace";
  fs::create_directories(other / "kineto");
  const auto expect_replaced = [&](const fs::path& link, const fs::path& target) {
    fs::create_directory_symlink(target, link);
    EXPECT_EQ(run_command("export", run.string() + " --kineto", false).code, 0);
    EXPECT_TRUE(fs::is_empty(other / "kineto"));
    EXPECT_FALSE(fs::is_symlink(link));
    EXPECT_FALSE(fs::is_empty(trace / "kineto"));
  };
  expect_replaced(trace, other);
  fs::remove_all(trace / "kineto");
  expect_replaced(trace / "kineto", other / "kineto");
  const std::string out = path("out").string();
  fs::create_directories(out);
  fs::create_directory_symlink(other / "kineto", out + "/kineto");
  const Result refused = run_command("export", run.string() + " --kineto --out " + out, true);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr(out + "/kineto: is a link, which is not followed; remove"));
  EXPECT_TRUE(fs::is_symlink(out + "/kineto"));
  EXPECT_TRUE(fs::is_empty(other / "kineto"));
  EXPECT_EQ(run_command("export", run.string() + " --csv --out " + out, true).code, 0);
  fs::remove(run / "metrics.jsonl");
  ASSERT_EQ(::mkfifo((run / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(run_command("export", run.string() + " --tensorboard", true).text,
              HasSubstr("metrics.jsonl: cannot read as a file"));
}

TEST_F(ReportCommand, ExportsIntoNoFile) {
  const std::string run = run_of_two_steps().string(), out = path("file").string();
  std::ofstream(out) << "kept";
  const Result refused = run_command("export", run + " --kineto --out " + out, true);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text, HasSubstr(out + "/kineto: cannot be created: Not a directory; choose "
                                            "another folder with --out"));
}

TEST_F(ReportCommand, PrintsTheReportOfARunThatItMayNotChange) {
  const fs::path run = run_of_two_steps();
  ASSERT_EQ(::chmod(run.c_str(), 0555), 0);
  for (const fs::path& above : {path(""), run}) ASSERT_EQ(::chmod(above.c_str(), 0555), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // root may write there anyway
    constexpr uid_t nobody = 65534;
    if (::geteuid() == 0 && ::setuid(nobody) != 0) ::_exit(2);
    const Result refused = run_command("report", "--help", false);
    if (refused.code != 0) ::_exit(2);
    const Result result = run_command("report", run.string(), false);
    ::_exit(result.code == 0 && result.text.find("1.00 ms") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(::chmod(path("").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(run.c_str(), 0755), 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "nobody may not run the program here";
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(run / "report.html"));
}

TEST_F(ReportCommand, ReplaysIntoNoFileThatItReads) {
  const std::string raw = path("cupti.raw").string(), same = path("same.prof").string();
  fs::copy_file(testing_support::source_file("profiler/testdata/cifar10cnn-h200.cupti"), raw);
  const std::string before = read_file(raw);
  fs::create_symlink(raw, same);
  for (const std::string& out : {raw, same}) {
    const Result refused = run_command("replay", raw + " " + out, true);
    EXPECT_EQ(refused.code, 2) << out;
    EXPECT_THAT(refused.text, HasSubstr(out + ": is " + raw + ", the file that is read; write to"));
    EXPECT_TRUE(read_file(raw) == before) << out;
  }
}

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
  const Result json = run_command("report", session + " --json", false);
  EXPECT_TRUE(nlohmann::json::parse(json.text).at("trust").at("overhead_ns").is_null())
      << "nothing calibrated what a device's records cost";
  const Result exported = run_command("export", session + " --out " + trace, true);
  EXPECT_EQ(exported.code, 0) << exported.text;
  const Result checked = run_command("check-trace", trace + "/kineto/*", false);
  EXPECT_EQ(checked.code, 0) << checked.text;
}

}  // namespace
}  // namespace warpstep
