// A second command for a run directory: while another process trains there, and after its run is
// complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <numbers>
#include <sstream>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Again : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  // Every file's content and time.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(out_)) {
      std::ostringstream text;
      text << entry.last_write_time().time_since_epoch().count() << '\n'
           << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      files[entry.path().filename().string()] = text.str();
    }
    return files;
  }

  // Nothing to do, as `option` ends the run.
  void expect_nothing_to_do(const std::vector<std::string>& command, const std::string& option) {
    const auto before = snapshot();
    const Ended ended = run(command);
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr("nothing to do and nothing changed"));
    EXPECT_THAT(ended.err, HasSubstr("and " + option + " asks for no more"));
    EXPECT_TRUE(snapshot() == before);
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", out_ = folder_ / "run";
};

TEST_F(Again, RefusesToTrainWhereAnotherProcessDoes) {
  Program first(with(with(endless_run(data_, out_), "--keep-checkpoints"), "1"));
  ASSERT_TRUE(first.wait_until([&] { return !checkpoints(out_).empty(); }));
  // Readers need no lock, even if checkpoints are removed while they read.
  for (int i = 0; i < 5; ++i) {
    const Ended ended = run({"eval", out_});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  first.signal(SIGSTOP);
  siginfo_t stopped{};  // all of its threads: until then it still writes
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(first.id()), &stopped, WSTOPPED | WNOWAIT), 0);
  const auto before = snapshot();
  for (const auto& second : {short_run(data_, out_),
                             with(short_run(data_, out_), "--overwrite"),
                             {"train", "--resume", out_}}) {
    const Ended ended = run(second);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, HasSubstr("process " + std::to_string(first.id()) + " on "));
    EXPECT_THAT(ended.err, HasSubstr("trains into this directory"));
  }
  EXPECT_TRUE(snapshot() == before);
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().signal, SIGKILL);
  const int done = std::stoi(checkpoints(out_).back().stem().string().substr(11));
  const Ended resumed = run({"train", "--resume", out_, "--steps", std::to_string(done + 1)});
  EXPECT_EQ(resumed.exit_code, 0) << "a killed process locks nothing: " << resumed.err;
  EXPECT_FALSE(fs::exists(out_ + "/.lock"));
}

// Sums of gradients of fp16 are times its loss scale.
TEST_F(Again, APrecisionWithoutItsLossScaleContinuesAfterAnUpdate) {
  const auto steps = [&](const char* count, std::vector<std::string> command) {
    return run(with(std::move(command), "--steps", count));
  };
  const std::vector<std::string> begun{
      "train",       "mlp",  "--data",       data_, "--out",   out_, "--device", "ref",
      "--precision", "fp16", "--accumulate", "2",   "--batch", "4",  "--epochs", "9"};
  const std::vector<std::string> other{"train", "--resume", out_, "--precision", "fp32"};
  ASSERT_EQ(steps("3", begun).exit_code, 0);
  const Ended between = steps("4", other);
  EXPECT_EQ(between.exit_code, 2);
  EXPECT_THAT(between.err, HasSubstr("is between two updates (--accumulate)"));
  EXPECT_THAT(between.err, HasSubstr("resume with --precision fp16"));
  EXPECT_EQ(steps("4", {"train", "--resume", out_}).exit_code, 0);
  EXPECT_EQ(steps("5", other).exit_code, 0);
}

TEST_F(Again, ACompleteRunIsLeftAlone) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  expect_nothing_to_do({"train", "--resume", out_}, "--epochs 2");
  expect_nothing_to_do({"train", "--resume", out_, "--epochs", "1"}, "--epochs 1");
  expect_nothing_to_do({"train", "--resume", out_, "--steps", "7"}, "--steps 7");
}

// It would be evaluated and called finished, with more steps than it was asked for.
TEST_F(Again, AnEndThatIsPastIsRefused) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--checkpoint-every", "4", "--keep-checkpoints", "0"))
                .exit_code,
            0);
  const std::string middle = out_ + "/checkpoint-00000008.safetensors";
  const auto expect_refused = [&](const std::string& from) {
    for (const auto& [option, value] : {std::pair("--steps", "5"), {"--epochs", "1"}}) {
      const auto before = snapshot();
      const Ended ended = run({"train", "--resume", from, option, value});
      EXPECT_EQ(ended.exit_code, 2);
      EXPECT_THAT(ended.err, HasSubstr(std::string(option) + " " + value + ": " + middle +
                                       " is after 8 steps already (1 epoch and 2 steps of the "
                                       "next); --steps and --epochs are the length of the whole "
                                       "run, so give a larger number, or an older checkpoint"));
      EXPECT_TRUE(snapshot() == before);
    }
  };
  expect_refused(middle);  // later checkpoints would be renamed
  fs::remove(checkpoints(out_).back());
  fs::remove(out_ + "/summary.json");
  expect_refused(out_);  // as of a run that was killed
  const Ended ended = run({"train", "--resume", out_, "--steps", "8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 8) << "it ends exactly there";
  expect_nothing_to_do({"train", "--resume", out_, "--steps", "8"}, "--steps 8");
}

TEST_F(Again, TheLengthThatIsTypedWins) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--steps", "2")).exit_code, 0);
  expect_nothing_to_do({"train", "--resume", out_}, "--steps 2");
  ASSERT_EQ(run({"train", "--resume", out_, "--epochs", "1"}).exit_code, 0);
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 6);
  const Ended longer = run({"train", "--resume", out_, "--steps", "8", "--lr", "0.125"});
  ASSERT_EQ(longer.exit_code, 0);
  EXPECT_THAT(longer.err, HasSubstr(out_ + " continues after step 6, in epoch 2; changed: "));
  EXPECT_THAT(longer.err, HasSubstr("--lr 0.125 (was "));
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 8);
}

TEST_F(Again, BothLengthsOfARunAreThoseOfItsConfig) {
  const auto steps_of = [&](const std::vector<std::string>& arguments) {
    const std::string out = arguments.back();
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return read_json(out + "/summary.json")["steps"];
  };
  const std::string config = out_ + "/config.json", again = folder_ / "again";
  EXPECT_EQ(steps_of({"train", "mlp", "--data", data_, "--batch", "32", "--device", "cpu",
                      "--epochs", "1", "--steps", "20", "--out", out_}),
            6);
  EXPECT_EQ(steps_of({"train", "--config", config, "--out", again}), 6);
  EXPECT_EQ(steps_of({"train", "--config", config, "--overwrite", "--steps", "8", "--out", again}),
            8);
}

// As after a kill between config.json and the first checkpoint.
TEST_F(Again, WhatWasTypedSurvivesAKillBeforeACheckpoint) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const std::string begun = folder_ / "begun", typed = folder_ / "typed";
  for (const std::string& copy : {begun, typed}) fs::copy(out_, copy, fs::copy_options::recursive);
  ASSERT_EQ(run({"train", "--resume", typed, "--epochs", "4", "--lr", "0.01"}).exit_code, 0);
  const auto kill = [&] {
    fs::remove_all(out_);
    fs::copy(begun, out_, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(out_))
      fs::last_write_time(entry, entry.last_write_time() - std::chrono::hours(1));
    fs::copy_file(typed + "/config.json", out_ + "/config.json",
                  fs::copy_options::overwrite_existing);
  };
  kill();
  const Ended ended = run({"train", "--resume", out_});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("changed: --epochs 4 (was 2; as in config.json), --lr 0.01 (was "
                                   "0.001; as in config.json)"));
  expect_equal_runs(typed, out_);

  kill();  // and the command that is typed now wins
  const Ended shorter = run({"train", "--resume", out_, "--epochs", "2"});
  EXPECT_EQ(shorter.exit_code, 0) << shorter.err;
  EXPECT_THAT(shorter.err, testing::Not(HasSubstr("nothing changed")));
  EXPECT_EQ(read_json(out_ + "/config.json")["options"]["epochs"], 2);
  expect_nothing_to_do({"train", "--resume", out_}, "--epochs 2");

  kill();  // a checkpoint has options of its own
  const Ended of_file = run({"train", "--resume", checkpoints(out_).back()});
  EXPECT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_EQ(read_json(out_ + "/config.json")["options"]["lr"], 1e-3);
  expect_nothing_to_do({"train", "--resume", out_}, "--epochs 2");

  kill();
  Json wrong = read_json(out_ + "/config.json");
  wrong["options"]["batch"] = "many";
  put(out_ + "/config.json", wrong.dump());
  const Ended without = run({"train", "--resume", out_, "--epochs", "3"});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.err, HasSubstr("the run continues with the options of " + out_));
  EXPECT_EQ(read_json(out_ + "/config.json")["options"]["lr"], 1e-3);

  put(out_ + "/config.json", std::string("garbage"));
  expect_nothing_to_do({"train", "--resume", out_}, "--epochs 3");
}

// Rates of a cosine to 0 over the whole run, whose earlier epochs had 6 steps.
TEST_F(Again, AScheduleEndsWithTheRunAfterAnotherBatch) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--lr-schedule", "cosine")).exit_code, 0);
  const std::string begun = folder_ / "begun";
  fs::copy(out_, begun, fs::copy_options::recursive);
  struct Case {
    const char *batch, *epochs;
    std::size_t steps;
  };
  for (const Case& c : {Case{"64", "4", 18}, Case{"16", "3", 24}}) {
    SCOPED_TRACE(c.batch);
    fs::remove_all(out_);
    fs::copy(begun, out_, fs::copy_options::recursive);
    fs::remove(out_ + "/session.prof");
    const Ended ended =
        run({"train", "--resume", out_, "--batch", c.batch, "--epochs", c.epochs,
             "--checkpoint-every", "1", "--keep-checkpoints", "0", "--warmup-steps", "15"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], c.steps);
    EXPECT_TRUE(fs::exists(out_ + "/session.prof")) << "it was profiled";
    std::vector<double> rates;
    for (const Json& line : metrics(out_))
      if (line["kind"] == "step") rates.push_back(line["learning_rate"]);
    ASSERT_EQ(rates.size(), c.steps);
    for (std::size_t step = 15; step < c.steps; ++step)
      EXPECT_NEAR(rates[step],
                  0.5e-3 * (1 + std::cos(std::numbers::pi * static_cast<double>(step - 15) /
                                         static_cast<double>(c.steps - 15))),
                  1e-9)
          << "of step " << step + 1;
    const std::string twice = folder_ / "twice";
    fs::remove_all(twice);
    fs::copy(out_, twice, fs::copy_options::recursive);
    const Ended again = run({"train", "--resume", twice + "/checkpoint-00000014.safetensors"});
    ASSERT_EQ(again.exit_code, 0) << again.err;
    expect_equal_runs(out_, twice);
  }
}

// A cut after each epoch; the warm-up is over in the second.
TEST_F(Again, AStepScheduleCutsAfterEpochsOfAnyLength) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--lr-schedule", "step", "--lr-step-epochs", "1",
                     "--warmup-steps", "8"))
                .exit_code,
            0);
  const std::string begun = folder_ / "begun";
  fs::copy(out_, begun, fs::copy_options::recursive);
  for (const auto& [batch, epoch_steps] : {std::pair("64", 3), {"16", 12}}) {
    SCOPED_TRACE(batch);
    fs::remove_all(out_);
    fs::copy(begun, out_, fs::copy_options::recursive);
    const Ended ended = run({"train", "--resume", out_, "--batch", batch, "--epochs", "4"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    std::vector<double> rates;
    for (const Json& line : metrics(out_))
      if (line["kind"] == "step") rates.push_back(line["learning_rate"]);
    ASSERT_EQ(rates.size(), idx(12 + 2 * epoch_steps));
    for (std::size_t step = 8; step < rates.size(); ++step) {
      const int later = static_cast<int>(step) - 12;
      const int cuts = later < 0 ? 1 : 2 + later / epoch_steps;
      EXPECT_NEAR(rates[step], 1e-3 * std::pow(0.1, cuts), 1e-9) << "of step " << step + 1;
    }
  }
}

// Not one whose checkpoint is broken: no older one would fit either.
TEST_F(Again, TransformsOfAnotherSizeAreNamed) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const auto before = snapshot();
  const Ended ended =
      run({"train", "--resume", out_, "--epochs", "3", "--transforms", "random-crop=6,flip"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("--transforms random-crop=6,flip: random-crop=6 makes images of 6x6x3, but "
                        "the model was trained on images of 8x8x3 and has other weights for other "
                        "sizes; scale them to that size, --transforms resize=8x8, or leave out "
                        "--transforms\n"));
  EXPECT_TRUE(snapshot() == before);

  const std::string large = folder_ / "large";
  for (const char* split : {"train", "test"})
    data::testing::put_png_split(large + "/" + split, 64, 3, {12, 12, 3});
  const std::vector<std::string> other{
      "train", "--resume", out_, "--data", large, "--allow-changed-data", "--epochs", "3"};
  const Ended data = run(other);
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.err, HasSubstr(": images stay 12x12x3, but the model was trained on images of "
                                  "8x8x3 and has other weights for other sizes; scale them to that "
                                  "size, --transforms resize=8x8\n"));
  EXPECT_EQ(run(with(other, "--transforms", "resize=8x8")).exit_code, 0);
}

TEST_F(Again, TheFinalRateGoesWithTheRunsOwnSchedule) {
  ASSERT_EQ(
      run(with(short_run(data_, out_), "--lr-schedule", "cosine", "--lr-final", "5e-4")).exit_code,
      0);
  const std::vector<std::string> more{"train", "--resume", out_, "--epochs", "3"};
  const Ended low = run(with(more, "--lr", "1e-4"));
  EXPECT_EQ(low.exit_code, 2);
  EXPECT_THAT(low.err, HasSubstr("--lr-final 0.0005 is above --lr 0.0001: it is the run's own; "
                                 "give another --lr-final, of at most 0.0001, with --lr"));
  const Ended both = run(with(more, "--lr-schedule", "constant", "--lr-final", "1e-4"));
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--lr-final goes with --lr-schedule cosine, not constant"));
  const Ended ended = run(with(more, "--lr-schedule", "constant"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--lr-schedule constant (was cosine), --lr-final 0.0 (was "
                                   "0.0005)"));
}

// Killed when everything was saved except the summary.
// An edited summary, or a pipe in its place, loses only its figures.
TEST_F(Again, AForeignSummaryIsWrittenAgain) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  for (const char* text :
       {"5", "{\"outcome\":5}", "{\"outcome\":\"finished\",\"steps\":\"x\"}",
        "{\"outcome\":\"finished\",\"steps\":0,\"images_per_second\":\"x\",\"loading\":3}"}) {
    SCOPED_TRACE(text);
    std::ofstream(out_ + "/summary.json") << text;
    const Ended ended = run({"train", "--resume", out_});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(read_json(out_ + "/summary.json")["outcome"], "finished");
    EXPECT_FALSE(read_json(out_ + "/summary.json").contains("images_per_second"));
  }
  fs::remove(out_ + "/summary.json");
  ASSERT_EQ(::mkfifo((out_ + "/summary.json").c_str(), 0600), 0);
  EXPECT_EQ(run({"train", "--resume", out_}).exit_code, 0);
}

// Otherwise the genuine checkpoints would be pruned as older ones.
TEST_F(Again, ACheckpointIsOfTheStepThatItsNameSays) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const fs::path last = checkpoints(out_).back();
  fs::rename(last, fs::path(out_) / "checkpoint-00009999.safetensors");
  const Ended ended = run({"train", "--resume", out_, "--epochs", "9"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("and its name step 9999"));
}

// What it renames and removes there is not its own.
TEST_F(Again, ACheckpointAwayFromItsRunIsNotResumed) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const std::string archive = folder_ / "archive",
                    saved = archive + "/checkpoint-00000006.safetensors";
  fs::create_directories(archive);
  fs::copy_file(checkpoints(out_).front(), saved);
  const Ended ended = run({"train", "--resume", saved, "--epochs", "3"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr(archive + " is not a run directory: it has no config.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(archive), {}), 1);
}

TEST_F(Again, ARunWithoutMomentumStaysSo) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--optimizer", "sgd")).exit_code, 0);
  const Ended ended = run({"train", "--resume", out_, "--epochs", "3", "--momentum", "0.9"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--momentum 0.9: the run in " + out_ + " has none so far"));
  EXPECT_THAT(ended.err, HasSubstr("--weights " + checkpoints(out_).back().string()));
}

TEST_F(Again, ALostSummaryIsWrittenWithoutASpeed) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const Json whole = timeless_summary(out_);
  fs::remove(out_ + "/summary.json");
  ASSERT_EQ(run({"train", "--resume", out_}).exit_code, 0);
  EXPECT_EQ(timeless_summary(out_), whole);
  EXPECT_FALSE(read_json(out_ + "/summary.json").contains("images_per_second"));
}

TEST_F(Again, ALostSummaryIsWrittenFromTheBestCheckpointIfThatIsTheLast) {
  ASSERT_EQ(run(with(short_run(data_, out_), "--steps", "6")).exit_code, 0);
  const std::string best = out_ + "/best.safetensors";
  ASSERT_TRUE(fs::equivalent(checkpoints(out_).back(), best));
  expect_nothing_to_do({"train", "--resume", best}, "--steps 6");
  fs::remove(out_ + "/summary.json");
  const Ended ended = run({"train", "--resume", best});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 6);
}

}  // namespace
}  // namespace warpstep::system_test
