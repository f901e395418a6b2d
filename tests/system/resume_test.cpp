// A run that was killed or interrupted and then resumed equals an uninterrupted one, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// An uninterrupted run, and the start of others; each with a checkpoint in the middle of every
// epoch.
class Resume : public testing::Test {
 protected:
  void SetUp() override {
    make_set(data_);
    const Ended ended = run(start(alone_));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  std::vector<std::string> start(const std::string& out) const {
    std::vector<std::string> arguments = with(short_run(data_, out, "cifar10cnn"),
                                              "--checkpoint-every", "4", "--keep-checkpoints", "0");
    *std::find(arguments.begin(), arguments.end(), "2") = "6";  // epochs
    return arguments;
  }

  void resume(const std::string& what) {
    const Ended ended = run({"train", "--resume", what});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string alone_ = folder_ / "alone";
  const std::string out_ = folder_ / "run";
};

bool has_line(const std::string& run, const std::string& begin) {
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(begin)) return true;
  return false;
}

TEST_F(Resume, AfterAKillAtSeveralInstants) {
  const auto step = [&](int n) { return "{\"kind\":\"step\",\"step\":" + std::to_string(n) + ","; };
  const std::vector<std::pair<std::string, std::function<bool()>>> instants{
      {"first-checkpoint", [&] { return !checkpoints(out_).empty(); }},
      {"mid-epoch", [&] { return has_line(out_, step(11)); }},
      {"epoch-ends", [&] { return has_line(out_, "{\"kind\":\"epoch\",\"step\":18,"); }},
      {"late", [&] { return has_line(out_, step(33)); }}};
  for (const auto& [name, instant] : instants) {
    SCOPED_TRACE(name);
    fs::remove_all(out_);
    Program program(start(out_));
    ASSERT_TRUE(program.wait_until(instant));
    program.signal(SIGKILL);
    ASSERT_EQ(program.wait().signal, SIGKILL) << "it ended before the kill";
    resume(out_);
    expect_equal_runs(alone_, out_);
  }
}

TEST_F(Resume, AfterASignalInMidEpoch) {
  for (const int number : {SIGINT, SIGTERM}) {
    fs::remove_all(out_);
    Program program(start(out_));
    ASSERT_TRUE(
        program.wait_until([&] { return has_line(out_, "{\"kind\":\"step\",\"step\":8,"); }));
    program.signal(number);
    program.signal(number);  // timeout(1) sends it twice: that counts as one request
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 130);
    EXPECT_THAT(ended.err,
                HasSubstr("interrupted; continue with: warpstep train --resume " + out_));
    const Json summary = read_json(out_ + "/summary.json");
    EXPECT_EQ(summary["outcome"], "interrupted");
    EXPECT_EQ(summary["checkpoint"], checkpoints(out_).back().filename().string());
    EXPECT_EQ(metrics(out_).back()["step"], summary["steps"]) << "the step was finished and saved";
    resume(out_);
    expect_equal_runs(alone_, out_);
  }
}

// Evaluations of 4096 images, which a signal must cut short.
TEST(Interrupt, EndsAnEvaluationAtOnce) {
  const TemporaryFolder folder;
  make_set(folder / "data", 4096);
  const std::string alone = folder / "alone", out = folder / "run";
  ASSERT_EQ(run(short_run(folder / "data", alone, "cifar10cnn")).exit_code, 0);
  struct Case {
    const char* after;
    std::string checkpoint;
  };
  for (const Case& c : {Case{"device: cpu", "checkpoint-00000000.safetensors"},
                        Case{"epoch 1/2  training", "checkpoint-00000006.safetensors"},
                        Case{"epoch 2/2  training", "checkpoint-00000012.safetensors"}}) {
    SCOPED_TRACE(c.after);
    fs::remove_all(out);
    Program program(short_run(folder / "data", out, "cifar10cnn"));
    ASSERT_TRUE(program.wait_for_err(c.after));
    program.signal(SIGINT);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 130) << ended.err;
    ASSERT_FALSE(checkpoints(out).empty());
    EXPECT_EQ(checkpoints(out).back().filename(), c.checkpoint);
    EXPECT_TRUE(metrics(out).empty() || metrics(out).back()["kind"] == "epoch")
        << "the evaluation went on: " << metrics(out).back();
    const Ended resumed = run({"train", "--resume", out});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_equal_runs(alone, out);
    EXPECT_GT(read_json(out + "/summary.json").at("step_ms"), 0) << "also of an evaluation alone";
  }
}

TEST_F(Resume, FromAnOlderCheckpointWhenTheNewestIsBroken) {
  for (const bool truncated : {true, false}) {
    SCOPED_TRACE(truncated ? "truncated" : "a changed byte");
    fs::remove_all(out_);
    fs::copy(alone_, out_, fs::copy_options::recursive);
    const fs::path newest = checkpoints(out_).back();
    const fs::path older = *(checkpoints(out_).end() - 2);
    if (truncated) {
      fs::resize_file(newest, fs::file_size(newest) / 2);
    } else {
      std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(newest) / 2));
      file.put('\x55');
    }
    const Ended ended = run({"train", "--resume", out_});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, HasSubstr(newest.string()));
    EXPECT_THAT(ended.err, HasSubstr("--resume " + older.string()));
    if (truncated) {
      EXPECT_EQ(run({"eval", out_}).exit_code, 1);
    }

    resume(older.string());
    expect_equal_runs(alone_, out_);
    EXPECT_TRUE(fs::exists(newest.string() + ".old")) << "it is kept, by another name";
  }
}

TEST_F(Resume, UnfinishedFilesDoNoHarm) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  fs::remove(checkpoints(out_).back());
  const std::string leftover = out_ + "/.checkpoint-00000036.safetensors.tmp-1-0";
  put(leftover, std::string("half a file"));
  put(out_ + "/.notes.tmp-1", std::string("not ours"));
  put(out_ + "/checkpoint-zzz.safetensors", std::string("not ours either"));
  {
    std::ofstream(out_ + "/metrics.jsonl", std::ios::app)
        << "5\nnull\n{\"kind\":5,\"step\":1}\n{\"kind\":\"step\"}\n{\"kind\":\"st";
    std::ofstream(out_ + "/bad_samples.jsonl")
        << "[]\n{\"run_step\":\"x\"}\n"
        << R"({"run_step":1,"epoch":1,"step":1,"split":"train"})" << '\n'
        << R"({"run_step":1,"epoch":1,"step":1,"split":"train","sample":"x"})" << '\n'
        << R"({"run_step":1,"epoch":1,"step":1,"split":5,"sample":0})" << '\n'
        << R"({"run_step":1,"epoch":1,"step":1,"split":"tset","sample":0})" << '\n';
  }
  const Ended ended = run({"train", "--resume", out_});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("metrics.jsonl: 5 lines that "),
                               HasSubstr("bad_samples.jsonl: 6 lines that ")));
  fs::remove(out_ + "/checkpoint-zzz.safetensors");
  expect_equal_runs(alone_, out_);
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_TRUE(fs::exists(out_ + "/.notes.tmp-1"));
}

TEST_F(Resume, AFinishedRunContinuesWithMoreEpochs) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  const Ended ended = run({"train", "--resume", out_, "--epochs", "7"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_json(out_ + "/summary.json")["steps"], 42);
  std::vector<std::string> longer = start(folder_ / "longer");
  *std::find(longer.begin(), longer.end(), "6") = "7";
  ASSERT_EQ(run(longer).exit_code, 0);
  expect_equal_runs(folder_ / "longer", out_);
}

// Not by the seed that the checkpoint has.
TEST_F(Resume, DrawsByAnotherSeedFromTheEndOfAnEpochOn) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  const auto seed = [&] {
    return Json::parse(checkpoint_metadata(checkpoints(out_).back(), "warpstep.progress"))["seed"];
  };
  EXPECT_EQ(seed(), "0");
  const Ended ended = run({"train", "--resume", out_, "--epochs", "7", "--seed", "5"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(seed(), "5");
}

TEST_F(Resume, AFinishedRunStaysAsItIs) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  resume(out_);
  expect_equal_runs(alone_, out_);
}

TEST_F(Resume, RefusesAnotherRun) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  struct Case {
    std::vector<std::string> more;
    int exit_code;
    std::string message;
  };
  const std::string middle = out_ + "/checkpoint-00000004.safetensors";
  for (const Case& c : std::vector<Case>{
           {{"--resume", out_, "--optimizer", "sgd"},
            2,
            "--optimizer sgd: the run in " + out_ + " has adam"},
           {{"mlp", "--resume", out_}, 2, "model mlp: the run in " + out_ + " has cifar10cnn"},
           {{"--resume", out_, "--out", "x"}, 2, "--out does not go with --resume"},
           {{"--resume", out_, "--overwrite"}, 2, "--overwrite does not go with --resume"},
           {{"--resume", middle, "--batch", "16"}, 2, "is in mid-epoch, after 4 batches"},
           {{"--resume", middle, "--seed", "1"}, 2, "drawn with --seed 0"},
           {{"--resume", folder_ / "no"}, 1, "there is no such run directory or checkpoint"},
           {{"--resume", data_}, 1, "is not a run directory: it has no checkpoint"},
           {{"--resume", out_ + "/config.json"},
            1,
            out_ + "/config.json: is not a checkpoint; give the run directory"}}) {
    const Ended ended = run([&] {
      std::vector<std::string> arguments{"train"};
      arguments.insert(arguments.end(), c.more.begin(), c.more.end());
      return arguments;
    }());
    EXPECT_EQ(ended.exit_code, c.exit_code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(c.message));
    EXPECT_EQ(ended.out, "");
  }
  expect_equal_runs(alone_, out_);
}

TEST_F(Resume, RefusesDataThatChanged) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  const auto expect_refused = [&](const std::string& split) {
    const Ended ended = run({"train", "--resume", out_, "--epochs", "9"});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, HasSubstr("the " + split + " data are not those of the run"));
    EXPECT_THAT(ended.err, HasSubstr("start a new run with another --out"));
  };
  const std::string moved = folder_ / "moved";
  fs::rename(data_, moved);
  EXPECT_THAT(run({"train", "--resume", out_}).err,
              AllOf(HasSubstr(data_ + ": there is no such folder"), HasSubstr("--data FOLDER")));
  const Ended ended = run({"train", "--resume", out_, "--data", moved, "--epochs", "7"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;  // the same set in another place
  make_set(data_, 63);
  fs::remove_all(out_);
  fs::copy(alone_, out_, fs::copy_options::recursive);
  expect_refused("test");
  fs::remove_all(data_);
  make_set(data_);
  put(data_ + "/train/" + file_name(7), data::testing::some_png({8, 8, 3}));
  expect_refused("training");
  fs::remove_all(data_);
  make_set(data_);  // a faithful copy, with other times
  const std::string changed = data_ + "/test/" + file_name(2);
  const auto bytes = fs::file_size(changed);
  put(changed, std::string(bytes, 'x'));  // of the same size
  expect_refused("test");
  expect_equal_runs(alone_, out_);
}

// Before anything in the run directory changes.
TEST_F(Resume, RefusesAPlaceBeyondAnEpochThatShrank) {
  fs::copy(alone_, out_, fs::copy_options::recursive);
  const std::string small = folder_ / "small";
  for (const char* split : {"train", "test"})
    for (int i = 0; i < 192; i += 2) {
      const std::string image = data_ + "/" + split + "/" + file_name(i);
      const std::string label = small + "/" + split + "/" + std::to_string(i / 2 % set_classes);
      fs::create_directories(label);
      if (fs::exists(image)) fs::copy(image, label);
    }
  const Ended ended = run({"train", "--resume", out_ + "/checkpoint-00000004.safetensors", "--data",
                           small, "--allow-changed-data"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("is in mid-epoch, after 4 batches, and an epoch of the data as "
                                   "they are now has 3; resume from a checkpoint at the end"));
  expect_equal_runs(alone_, out_);
}

}  // namespace
}  // namespace warpstep::system_test
