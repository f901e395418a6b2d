// The checkpoint with the best evaluation: kept whatever follows, also after interruptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Learns for two epochs; then each step removes the weights, as lr * weight_decay is 1.
class Best : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  std::vector<std::string> start(const std::string& out, const std::string& epochs = "4",
                                 const std::string& keep = "1") const {
    std::vector<std::string> arguments =
        with(short_run(data_, out), "--optimizer", "sgd", "--momentum", "0.1", "--weight-decay",
             "0.5", "--lr-schedule", "step", "--lr-step-epochs", "2", "--lr-gamma", "10",
             "--keep-checkpoints", keep);
    *std::find(arguments.begin(), arguments.end(), "2") = epochs;
    *std::find(arguments.begin(), arguments.end(), "1e-3") = "0.2";
    return arguments;
  }
  static void train(const std::vector<std::string>& arguments) {
    const Ended ended = run(arguments);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  static Json evaluate(const std::string& run_directory, const std::string& which) {
    const Ended ended = run({"eval", run_directory, "--checkpoint", which, "--json"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return Json::parse(ended.out);
  }
  static Json best_in_summary(const std::string& run_directory) {
    return read_json(run_directory + "/summary.json").at("best");
  }
  static std::string progress_of(const std::string& checkpoint) {
    return checkpoint_metadata(checkpoint, "warpstep.progress");
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", out_ = folder_ / "run", other_ = folder_ / "other";
  const std::string best_ = out_ + "/best.safetensors";
};

TEST_F(Best, IsKeptThoughTheRunForgets) {
  const Ended ended = run(start(out_));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(checkpoints(out_).size(), 1U);
  EXPECT_EQ(checkpoints(out_).back().filename(), "checkpoint-00000024.safetensors");

  Json first;  // of the evaluations, the best one
  for (const Json& line : metrics(out_))
    if (line["kind"] == "evaluation" && line["step"] > 0)
      if (first.is_null() || line["accuracy"] > first["accuracy"] ||
          (line["accuracy"] == first["accuracy"] && line["loss"] < first["loss"]))
        first = line;
  const Json best = best_in_summary(out_);
  EXPECT_LT(best["step"], 24) << "it did not forget";
  for (const char* key : {"step", "epoch", "accuracy", "loss"}) EXPECT_EQ(best[key], first[key]);
  EXPECT_EQ(best["checkpoint"], "best.safetensors");
  EXPECT_THAT(ended.out, HasSubstr("  best       "));
  EXPECT_THAT(ended.out, HasSubstr(": " + best_ + "\n"));

  EXPECT_EQ(evaluate(out_, "best")["accuracy"], best["accuracy"]);
  EXPECT_EQ(evaluate(out_, "best")["loss"], best["loss"]);
  EXPECT_EQ(evaluate(out_, "best")["checkpoint"], best_);
  EXPECT_EQ(evaluate(out_, "best.safetensors"), evaluate(out_, "best"));
  EXPECT_EQ(evaluate(out_, best_), evaluate(out_, "best"));
  const std::string last = checkpoints(out_).back();
  EXPECT_EQ(evaluate(out_, "last")["checkpoint"], last);
  EXPECT_EQ(Json::parse(run({"eval", out_, "--json"}).out)["checkpoint"], last);
  EXPECT_LT(evaluate(out_, "last")["accuracy"], best["accuracy"]);
}

TEST_F(Best, IsRememberedByAResumedRun) {
  train(start(other_));
  train(start(out_, "3"));
  train({"train", "--resume", out_, "--epochs", "4"});
  EXPECT_EQ(best_in_summary(out_), best_in_summary(other_));
  EXPECT_EQ(progress_of(best_), progress_of(other_ + "/best.safetensors"));
  expect_equal_runs(other_, out_);
}

TEST_F(Best, SurvivesAKillBetweenTheCheckpointAndIt) {
  train(start(out_, "2"));
  const Json before = best_in_summary(out_);
  ASSERT_EQ(before["step"], 12);
  fs::remove(best_);
  put(out_ + "/.best.safetensors.tmp-1-0", std::string("half a file"));
  train({"train", "--resume", out_, "--epochs", "4"});
  EXPECT_EQ(best_in_summary(out_), before);
  EXPECT_EQ(evaluate(out_, "best")["accuracy"], before["accuracy"]);
  EXPECT_FALSE(fs::exists(out_ + "/.best.safetensors.tmp-1-0"));
}

TEST_F(Best, OfALaterStepIsNotThatOfARunThatGoesBack) {
  train(start(out_, "2", "0"));
  ASSERT_EQ(best_in_summary(out_)["step"], 12);
  const Ended ended =
      run({"train", "--resume", out_ + "/checkpoint-00000006.safetensors", "--steps", "8"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(best_ + " is after the checkpoint resumed from: renamed to "
                                           "best.safetensors.old"));
  EXPECT_TRUE(fs::exists(best_ + ".old"));
  EXPECT_LE(best_in_summary(out_)["step"], 8);
  train(with(start(out_, "1"), "--overwrite"));
  EXPECT_FALSE(fs::exists(best_ + ".old"));
}

TEST_F(Best, MayBeGoneOnFrom) {
  train(start(out_));
  const auto step = best_in_summary(out_)["step"].get<std::uint64_t>();
  train({"train", "--resume", best_, "--lr-gamma", "1"});
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 24);
  EXPECT_GE(best_in_summary(out_)["step"], step);
  EXPECT_EQ(checkpoints(out_).size(), 1U);

  fs::remove(checkpoints(out_).back());
  train({"train", "--resume", out_, "--epochs", "5"});  // there is no other
  ASSERT_EQ(checkpoints(out_).size(), 1U);
  fs::resize_file(best_, fs::file_size(best_) / 2);
  const Ended broken = run({"train", "--resume", best_});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("the newest checkpoint may be intact: --resume " +
                                    checkpoints(out_).back().string()));
  const Ended without = run({"train", "--resume", out_, "--epochs", "6"});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.err, HasSubstr("renamed to best.safetensors.old"));
  EXPECT_TRUE(fs::exists(best_));
}

// A rate of 0: no evaluation is better than the first.
TEST_F(Best, EndsARunWhosePatienceIsOver) {
  std::vector<std::string> arguments =
      with(short_run(data_, out_), "--patience", "2", "--monitor", "loss", "--min-delta", "1e-9");
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "9";
  *(std::find(arguments.begin(), arguments.end(), "--lr") + 1) = "0";
  const Ended ended = run(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("ends early after 2 evaluations without a better loss"));
  EXPECT_THAT(ended.out, HasSubstr("early: 2 evaluations without a better loss than "));
  Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["outcome"], "stopped early");
  EXPECT_EQ(summary["epochs"], 3);
  EXPECT_EQ(summary["stopped_early"]["step"], 6);
  EXPECT_THAT(run({"runs", out_}).out, HasSubstr("stopped early"));
  const Ended nothing = run({"train", "--resume", out_});
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_THAT(nothing.err, HasSubstr("ended early, after 2 evaluations without a better one"));
  EXPECT_EQ(run({"train", "--resume", out_, "--patience", "3"}).exit_code, 0);
  summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["epochs"], 4) << "the count continues";
  EXPECT_EQ(summary["stopped_early"]["evaluations"], 3);
}

// The patience counts from the first evaluation, which no later one beats by --min-delta; the kept
// checkpoint is the best one whatever that is.
TEST_F(Best, MayBeOfALaterStepThanThePatienceCountsFrom) {
  train(with(start(out_, "9"), "--patience", "2", "--monitor", "loss", "--min-delta", "9"));
  const Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["outcome"], "stopped early");
  EXPECT_EQ(summary["steps"], 18);
  EXPECT_EQ(summary["stopped_early"]["step"], 6);
  EXPECT_EQ(summary["stopped_early"]["min_delta"], 9);
  EXPECT_EQ(summary["best"]["step"], 12);
  EXPECT_LT(summary["best"]["loss"], summary["stopped_early"]["best"]);
  EXPECT_EQ(evaluate(out_, "best")["loss"], summary["best"]["loss"]);
}

// A rate that changes the loss, and no image's class: the first of equal accuracies, and the lowest
// loss.
TEST_F(Best, IsTheLowestLossOfEqualAccuracies) {
  std::vector<std::string> arguments =
      with(short_run(data_, out_), "--patience", "2", "--optimizer", "sgd");
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "9";
  *(std::find(arguments.begin(), arguments.end(), "--lr") + 1) = "1e-6";
  train(arguments);
  const Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["stopped_early"]["step"], 6);
  EXPECT_EQ(summary["stopped_early"]["best"], summary["best"]["accuracy"]);
  EXPECT_EQ(summary["best"]["step"], 18);
}

TEST_F(Best, EndsEarlyAtTheSameStepIfThePatienceIsInterrupted) {
  train(with(start(out_, "9"), "--patience", "3"));
  EXPECT_EQ(read_json(out_ + "/summary.json")["outcome"], "stopped early");
  EXPECT_EQ(read_json(out_ + "/summary.json")["epochs"], 4) << "the first had no mistake";
  train(with(start(other_, "3"), "--patience", "3"));
  EXPECT_EQ(read_json(other_ + "/summary.json")["outcome"], "finished");
  train({"train", "--resume", other_, "--epochs", "9"});
  expect_equal_runs(out_, other_);
}

TEST_F(Best, IsLeftOutOnRequest) {
  train(with(start(out_, "2"), "--no-keep-best"));
  EXPECT_FALSE(fs::exists(best_));
  EXPECT_FALSE(read_json(out_ + "/summary.json").contains("best"));
  const Ended best = run({"eval", out_, "--checkpoint", "best"});
  EXPECT_EQ(best.exit_code, 1);
  EXPECT_THAT(best.err, AllOf(HasSubstr(out_ + ": no best.safetensors in it"),
                              HasSubstr("--checkpoint last uses the newest")));
  const Ended no = run({"eval", out_, "--checkpoint", "first"});
  EXPECT_EQ(no.exit_code, 1);
  EXPECT_THAT(no.err, HasSubstr("--checkpoint first: there is no such file"));
  const Ended of_file = run({"eval", checkpoints(out_).back().string(), "--checkpoint", "best"});
  EXPECT_EQ(of_file.exit_code, 2);
  EXPECT_THAT(of_file.err, HasSubstr("--checkpoint best: needs a run directory"));
  train({"train", "--resume", out_, "--epochs", "3"});
  EXPECT_FALSE(fs::exists(best_)) << "the run's own options count";
}

// The disk fills while a later checkpoint is written: the kept one stays complete.
TEST_F(Best, OutlivesAFullDisk) {
  train(start(out_, "2"));
  const Json best = evaluate(out_, "best"), last = evaluate(out_, "last");
  Setting full;
  full.max_file_bytes = 1'000'000;  // a checkpoint has 4.6 MB
  const Ended ended = run({"train", "--resume", out_, "--epochs", "3"}, full);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr(out_ + "/checkpoint-00000018.safetensors: cannot write"));
  EXPECT_EQ(evaluate(out_, "best"), best);
  EXPECT_EQ(evaluate(out_, "last"), last);
  train({"train", "--resume", out_, "--epochs", "3"});
}

}  // namespace
}  // namespace warpstep::system_test
