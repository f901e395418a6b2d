// `warpstep try`: two processes of a run take turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// The processes whose command names this folder.
std::size_t processes_of(const std::string& folder) {
  std::size_t count = 0;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc")) {
    std::ifstream file(process.path() / "cmdline", std::ios::binary);
    const std::string command{std::istreambuf_iterator<char>(file), {}};
    count += command.find(folder) != std::string::npos;
  }
  return count;
}

// One run for all tests.
class Try : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    make_set(*folder_ / "data", 4);
    const Ended ended = run({"train", "mlp", "--data", *folder_ / "data", "--device", "cpu",
                             "--batch", "4", "--epochs", "1", "--out", out()});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string out() { return *folder_ / "run"; }
  // With few short turns.
  template <class... More>
  static std::vector<std::string> tried(const More&... more) {
    return with({"try", out(), "--starts", "1", "--turn-seconds", "0.4"}, more...);
  }
  static std::vector<std::string> left_in_folder() {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_->path()))
      if (const std::string name = entry.path().filename(); name.starts_with("run."))
        names.push_back(name);
    return names;
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Try::folder_ = nullptr;

TEST_F(Try, MeasuresAChangeAndLeavesNothing) {
  const Ended ended = run(tried("--turns", "5", "--batch", "8", "--json"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json result = Json::parse(ended.out);
  EXPECT_EQ(result["before"]["samples_per_step"], 4);
  EXPECT_EQ(result["after"]["samples_per_step"], 8);
  EXPECT_GE(result["pairs_of_turns"], 3);
  for (const char* const side : {"before", "after"}) {
    const Json& means = result[side];
    EXPECT_GE(means["steps"], 3);
    double parts = 0;
    for (const char* const part : {"data_ns", "copies_ns", "kernels_ns", "cpu_ns", "other_ns"})
      parts += means[part].get<double>();
    EXPECT_NEAR(parts / means["step_ns"].get<double>(), 1, 1e-6);
  }
  EXPECT_LT(result["low"], result["ratio"]);
  EXPECT_LT(result["ratio"], result["high"]);
  EXPECT_THAT(result["verdict"].get<std::string>(), HasSubstr("ith --batch 8 a sample takes"));
  EXPECT_THAT(ended.err, HasSubstr("start 1 of 1: 5 turns of 0.4 s per side"));
  EXPECT_THAT(left_in_folder(), testing::IsEmpty());
}

// The sides are trainings as of `train`: `compare` reads them.
TEST_F(Try, GivesTheChangedSideItsVariablesAndKeepsTheRuns) {
  const std::string kept = *folder_ / "kept";
  const Ended ended = run(tried("--turns", "3", "--env", "WARPSTEP_CPU_ISA=portable",
                                "--no-keep-best", "--keep", kept));
  EXPECT_EQ(ended.exit_code, 2) << "what a run does between its steps cannot be tried";
  const Ended again = run(tried("--turns", "5", "--env", "OMP_DYNAMIC=true", "--keep", kept));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("ith OMP_DYNAMIC=true a step takes"),
                               HasSubstr("95 % interval"), HasSubstr("steps counted")));
  const auto dynamic = [&](const std::string& side) {
    const Ended report = run({"report", kept + "/1/" + side, "--json"});
    return report.out.find("\"OMP_DYNAMIC\": \"true\"") != std::string::npos;
  };
  EXPECT_TRUE(dynamic("changed"));
  EXPECT_FALSE(dynamic("before"));
  EXPECT_EQ(read_json(kept + "/1/before/summary.json")["outcome"], "interrupted");
  const Json turns = read_json(kept + "/1/turns.json");
  ASSERT_EQ(turns.size(), 10U);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i]["side"], i % 4 == 1 || i % 4 == 2 ? "changed" : "before");
    EXPECT_LT(turns[i]["begin_ns"], turns[i]["end_ns"]);
  }
  EXPECT_EQ(run(tried("--turns", "3", "--batch", "8", "--keep", kept)).exit_code, 2)
      << "it is not empty";
}

TEST_F(Try, SaysWhyASideFailed) {
  const Ended ended = run(tried("--turns", "3", "--model-option", "heads=3"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the run with --model-option heads=3 ended with code 2: "),
                               HasSubstr("heads")));
  const Ended missing = run(tried("--turns", "3", "--program", "/no/such/program"));
  EXPECT_THAT(
      missing.err,
      HasSubstr("the run with /no/such/program ended with code 127: it cannot be executed"));
  EXPECT_THAT(left_in_folder(), testing::IsEmpty());
}

TEST_F(Try, RefusesWhatIsNoChange) {
  const Ended nothing = run(tried("--turns", "3"));
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("what to try? Give options that the run did not have"));
  const Ended same = run(tried("--turns", "3", "--batch", "4"));
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_THAT(same.err, HasSubstr("--batch 4 is what " + out() + " had"));
  const Ended missing = run({"try", *folder_ / "runn", "--batch", "8"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("has no config.json"), HasSubstr("did you mean")));
}

TEST_F(Try, EndsBothSidesWhenInterrupted) {
  Program program(tried("--batch", "8", "--turns", "10000"));
  ASSERT_TRUE(program.wait_for_err("10000 turns"));
  EXPECT_EQ(processes_of(out() + ".try-"), 2);
  program.signal(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_EQ(processes_of(out() + ".try-"), 0);
  EXPECT_THAT(left_in_folder(), testing::IsEmpty());
}

// A stopped process would stay for ever.
TEST_F(Try, EndsBothSidesWhenKilled) {
  Program program(tried("--batch", "8", "--turns", "10000"));
  ASSERT_TRUE(program.wait_for_err("10000 turns"));
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().signal, SIGKILL);
  const std::string mark = out() + ".try-";
  for (int tries = 0; processes_of(mark) > 0 && tries < 1000; ++tries) ::usleep(10'000);
  EXPECT_EQ(processes_of(mark), 0);
  for (const std::string& name : left_in_folder()) fs::remove_all(*folder_ / name);
}

}  // namespace
}  // namespace warpstep::system_test
