// A profiled run, from its options to its reports and exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "engine/core/file.h"
#include "engine/core/text.h"
#include "tests/build_tree.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* window = "skip_first=1,wait=0,warmup=1,active=4";

// The arguments with another value of an option.
std::vector<std::string> changed(std::vector<std::string> arguments, const std::string& option,
                                 const std::string& value) {
  *std::next(std::find(arguments.begin(), arguments.end(), option)) = value;
  return arguments;
}

// One run for all tests that only read it.
class Profile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    make_set(data());
    const Ended ended = run(with(short_run(data(), out()), "--profile", "spans",
                                 "--profile-schedule", window, "--workers", "2"));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    printed_ = ended.out;
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string data() { return *folder_ / "data"; }
  static std::string out() { return *folder_ / "run"; }
  static Json report(const std::string& run_directory) {
    const Ended ended = run({"report", run_directory, "--json"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return Json::parse(ended.out);
  }

  static TemporaryFolder* folder_;
  static std::string printed_;
};
TemporaryFolder* Profile::folder_ = nullptr;
std::string Profile::printed_;

TEST_F(Profile, EndsARunWithItsSummaryAndAPage) {
  EXPECT_THAT(printed_, HasSubstr("Where a step's time goes"));
  EXPECT_THAT(printed_, HasSubstr("fc1/linear"));
  EXPECT_GT(fs::file_size(out() + "/report.html"), 10'000U);
  EXPECT_TRUE(fs::is_regular_file(out() + "/session.prof"));
}

TEST_F(Profile, ReportsPartsThatAddUpAndCallsOfEveryRecordedStep) {
  const Json tables = report(out()).at("tables");
  double sum = 0, total = 0;
  for (const Json& row : tables["breakdown"])
    (row["category"] == "Total" ? total : sum) += row["ns"].get<double>();
  EXPECT_GT(total, 0);
  EXPECT_NEAR(sum / total, 1, 1e-9);
  EXPECT_EQ(tables["steps"].size(), 12U);
  std::vector<std::string> parts;
  for (const Json& row : tables["whole_run"])
    if (row["of"] == "checkpoint") parts.push_back(row["part"]);
  EXPECT_THAT(parts, testing::IsSupersetOf({"gather", "write", "fsync", "rename", "remove"}));
  ASSERT_FALSE(tables["calls"].empty());
  for (const Json& row : tables["calls"]) EXPECT_EQ(row["count"], 4) << row;
  ASSERT_FALSE(tables["modules"].empty());
  EXPECT_NEAR(tables["modules"][0]["calls"].get<double>(),
              static_cast<double>(tables["calls"].size()), 1e-9);
  const auto has_line = [](const Json& row) {
    return row["path"] == "fc1" && row["source"] == "models/mlp.cpp:6";
  };
  EXPECT_TRUE(std::ranges::any_of(tables["modules"], has_line)) << tables["modules"];
  EXPECT_FALSE(tables["loader"].empty());
  EXPECT_FALSE(tables["memory"].empty());
  EXPECT_FALSE(tables["samples"].empty());
}

TEST_F(Profile, ExportsFilesThatItsCheckAndOtherProgramsRead) {
  const Ended exported = run({"export", out()});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  std::vector<fs::path> traces;
  for (const auto& entry : fs::directory_iterator(out() + "/trace/kineto"))
    traces.push_back(entry.path());
  ASSERT_EQ(traces.size(), 1U);
  const Ended checked = run({"check-trace", traces[0].string()});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  for (const char* kind :
       {"perfetto", "tensorboard", "tensorboard/system", "xplane/plugins/profile", "tables"})
    EXPECT_FALSE(fs::is_empty(out() + "/trace/" + kind)) << kind;
  EXPECT_GT(fs::file_size(out() + "/trace/memory/snapshot.pickle"), 1000U);
  const Ended as_device = run({"export", out(), "--kineto", "--cpu-as-device"});
  EXPECT_EQ(as_device.exit_code, 0) << as_device.err;
  const Ended again = run({"check-trace", traces[0].string()});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
}

TEST_F(Profile, KeepsExportsAndPagesOfOneDirectoryApart) {
  const std::string folder = *folder_ / "two";
  fs::create_directories(folder);
  fs::copy_file(out() + "/session.prof", folder + "/later.prof");
  const Ended exported = run({"export", folder + "/later.prof", "--csv"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(folder + "/trace/later/tables/steps.csv"));
  const Ended missing = run({"export", folder});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.err, HasSubstr("two: is not a run directory: it has no session.prof and no"));
  const Ended page = run({"report", folder + "/later.prof", "--tb-compatible"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, HasSubstr("DataLoader"));
  EXPECT_TRUE(fs::exists(folder + "/later-tb.html"));
  EXPECT_FALSE(fs::exists(folder + "/later.html"));
}

TEST_F(Profile, FindsNothingBetweenARunAndItself) {
  const Ended same = run({"compare", out(), out(), "--json"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  const Json comparison = Json::parse(same.out);
  for (const Json& change : comparison["changes"]) EXPECT_EQ(change["significant"], false);
}

TEST_F(Profile, RepeatsARunForAComparison) {
  const std::string other = *folder_ / "repeated here";
  const Ended ended = run(with(short_run(data(), other), "--repeat", "2"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("2 runs in " + other),
                               HasSubstr("warpstep compare " + shell_word(other) + " --against")));
  const Ended twice = run({"compare", out(), out(), "--against", other});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("is given twice on one side; name each run once"));
  const Ended compared = run({"compare", out(), "--against", other, "--json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const Json comparison = Json::parse(compared.out);
  EXPECT_EQ(comparison["runs"]["after"], 2);
  EXPECT_TRUE(comparison["step_changed"].is_boolean());
  EXPECT_EQ(comparison["scores"][0]["what"], "validation accuracy");
  EXPECT_EQ(comparison["scores"][0]["before"], comparison["scores"][0]["after"]) << "one seed";
  const Ended refused = run({"train", "--resume", other + "/1", "--repeat", "2", "--epochs", "9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("does not go with --resume"));
}

TEST_F(Profile, EndsAllRunsWhenInterrupted) {
  const std::string other = *folder_ / "stopped";
  Program program(with(changed(short_run(data(), other), "--epochs", "100000"), "--repeat", "3"));
  ASSERT_TRUE(program.wait_until([&] { return fs::exists(other + "/1/metrics.jsonl"); }));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 130);
  EXPECT_TRUE(fs::exists(other + "/1/summary.json")) << "the run has saved";
  EXPECT_FALSE(fs::exists(other + "/2"));
}

// A shell without job control, as of a script, starts it with SIGINT ignored.
TEST_F(Profile, EndsAllRunsOfABackgroundJob) {
  const std::string other = *folder_ / "background";
  std::vector<std::string> words =
      with(changed(short_run(data(), other), "--epochs", "20000"), "--repeat", "3");
  words.insert(words.begin(), {"-c", "trap 'kill -TERM $!' TERM; \"$@\" & wait $!; wait $!", "bash",
                               testing_support::binary_dir() + "/bin/warpstep"});
  Program program(words, {.program = "/bin/bash"});
  ASSERT_TRUE(program.wait_until([&] { return fs::exists(other + "/1/metrics.jsonl"); }));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 130);
  EXPECT_TRUE(fs::exists(other + "/1/summary.json")) << "the run has saved";
  EXPECT_FALSE(fs::exists(other + "/2"));
}

TEST_F(Profile, RefusesToCompareDifferentWork) {
  const std::string other = *folder_ / "other";
  const Ended ended = run(changed(short_run(data(), other), "--batch", "16"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended compared = run({"compare", out(), other});
  EXPECT_EQ(compared.exit_code, 2);
  EXPECT_THAT(compared.err, HasSubstr("batch"));
}

TEST_F(Profile, RefusesAScheduleBeforeAnythingIsDone) {
  const std::string other = *folder_ / "refused";
  const Ended ended = run(with(short_run(data(), other), "--profile-schedule", "activ=3"));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("activ"));
  EXPECT_FALSE(fs::exists(other));
}

// Without a GPU a run continues and says so.
TEST_F(Profile, TrainsOnWhereThereAreNoCounters) {
  const std::string other = *folder_ / "counters";
  const std::vector<std::string> asked =
      with(short_run(data(), other), "--profile", "spans", "--profile-counters");
  const Ended ended = run(with(asked, "--profile-schedule", window));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--profile-counters samples a GPU's counters; cpu has none"));
  EXPECT_THAT(ended.out, Not(HasSubstr("clocks were locked")));
  EXPECT_EQ(read_json(other + "/config.json")["options"]["profile_counters"], true);
}

TEST_F(Profile, RefusesCountersWithoutWindows) {
  const std::string other = *folder_ / "windowless";
  for (const char* level : {"off", "steps"}) {
    const Ended ended =
        run(with(short_run(data(), other), "--profile", level, "--profile-counters"));
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err,
                HasSubstr("which only --profile spans and deep record, not " + std::string(level)));
    EXPECT_FALSE(fs::exists(other));
  }
}

// Without spans too: what limits workers follows from it.
TEST_F(Profile, KeepsWhatTheLoaderUsedOfTheCpu) {
  const std::string other = *folder_ / "steps";
  ASSERT_EQ(run(with(short_run(data(), other), "--profile", "steps")).exit_code, 0);
  const Json cpu_ns = read_json(other + "/summary.json").at("loading").at("cpu_ns");
  EXPECT_GT(cpu_ns, 0);
  EXPECT_THAT(read_file(other + "/session.prof"),
              AllOf(HasSubstr("\"cpu_ns\":" + cpu_ns.dump() + ","), HasSubstr("\"mean_ready\":")));
}

// The advice to pack a set follows from it: pack --decode needs images of one size, and drops
// alpha.
TEST_F(Profile, KeepsWhetherTheSetCanBeStoredAsPixels) {
  const std::string set = *folder_ / "sizes", other = *folder_ / "pixels";
  make_set(set);
  const auto recorded = [&](const std::string& alpha) {
    const Ended ended = run(with(short_run(set, other), "--transforms", "centre-crop=8,normalize",
                                 "--alpha", alpha, "--overwrite"));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return read_file(other + "/session.prof");
  };
  EXPECT_THAT(recorded("drop"), HasSubstr("\"can_store_pixels\":true"));
  EXPECT_THAT(recorded("refuse"), HasSubstr("\"can_store_pixels\":true"));
  EXPECT_THAT(recorded("white"), HasSubstr("\"can_store_pixels\":false"));
  const std::string packed = *folder_ / "packed";
  ASSERT_EQ(run({"data", "pack", set, packed, "--decode"}).exit_code, 0);
  EXPECT_THAT(run(with(short_run(packed, other), "--alpha", "white", "--overwrite")).err,
              HasSubstr("note: --alpha white has no effect"));
  EXPECT_THAT(run(with(short_run(set, other), "--alpha", "white", "--overwrite")).err,
              Not(HasSubstr("note: --alpha")));
  for (int index = 96; index < 192; ++index)
    put(set + "/train/" + file_name(index), data::testing::some_png({9, 10, 3}));
  EXPECT_THAT(recorded("drop"), HasSubstr("\"can_store_pixels\":false"));
}

TEST_F(Profile, LeavesNoTraceWhenOff) {
  const std::string other = *folder_ / "off";
  ASSERT_EQ(run(with(short_run(data(), other), "--profile", "off")).exit_code, 0);
  EXPECT_FALSE(fs::exists(other + "/session.prof"));
  const Ended ended = run({"report", other});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("was not profiled"));
}

TEST_F(Profile, KeepsTheSessionsOfAResumedRunApart) {
  const std::string other = *folder_ / "resumed";
  ASSERT_EQ(run(short_run(data(), other)).exit_code, 0);
  ASSERT_EQ(run({"export", other, "--tensorboard"}).exit_code, 0);
  const Ended ended = run({"train", "--resume", other, "--epochs", "3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::is_regular_file(other + "/session-until-00000012.prof"));
  EXPECT_FALSE(fs::exists(other + "/trace/tensorboard")) << "TensorBoard would show both";
  EXPECT_TRUE(fs::exists(other + "/trace/session-until-00000012/tensorboard"));
  EXPECT_EQ(report(other).at("tables")["steps"].size(), 6U);
  const std::string linked = *folder_ / "linked";  // its exports are not this run's
  fs::rename(other + "/trace/session-until-00000012", linked);
  fs::remove_all(other + "/trace");
  fs::create_directory_symlink(linked, other + "/trace");
  ASSERT_EQ(run({"train", "--resume", other, "--epochs", "4"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(linked + "/tensorboard"));
}

// On demand, and killed in the middle: everything recorded before can be read.
TEST_F(Profile, RecordsARunningJobWhoseSessionSurvivesAKill) {
  const std::string other = *folder_ / "running";
  Program job(changed(short_run(data(), other), "--epochs", "1000000"));
  ASSERT_TRUE(job.wait_until([&] { return fs::exists(other + "/metrics.jsonl"); }));
  const std::string pid = std::to_string(job.id());
  ASSERT_TRUE(job.wait_until([&] { return run({"profile", pid, "--steps", "3"}).exit_code == 0; }));
  const auto has_calls = [&] {
    return fs::exists(other + "/session.prof") && !report(other)["tables"]["calls"].empty() &&
           report(other)["tables"]["calls"][0]["count"] == 3;
  };
  EXPECT_TRUE(job.wait_until(has_calls));
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().signal, SIGKILL);
  EXPECT_TRUE(has_calls());
  EXPECT_THAT(read_file(other + "/session.prof"),
              AllOf(HasSubstr("\"format\":"), HasSubstr("\"kernel_threads\":")));
}

TEST_F(Profile, ExplainsWhichJobItExpected) {
  const Ended ended = run({"profile", "4194303"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, Not(HasSubstr("terminate")));
  EXPECT_THAT(ended.err, HasSubstr("4194303"));
  EXPECT_THAT(run({"profile", "4194303", "--last", "1s", "--steps", "4"}).err,
              HasSubstr("--steps has no effect with --last"));
  const Ended of_run = run({"profile", "runs/first"});
  EXPECT_EQ(of_run.exit_code, 2);
  EXPECT_THAT(of_run.err, HasSubstr("warpstep report runs/first"));
}

}  // namespace
}  // namespace warpstep::system_test
