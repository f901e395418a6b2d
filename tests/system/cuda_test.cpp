// The program on a CUDA device, emulated by tests/cuda_on_cpu: steps in flight, slots that the
// device reads in place, loss scaling, resuming. The output must be the same as on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The program with its libraries, and the emulated backend as its CUDA backend.
std::string emulated() {
  return testing_support::binary_dir() + "/cuda_emulated";
}

Setting with_cuda() {
  Setting setting;
  setting.program = emulated() + "/bin/warpstep";
  return setting;
}

class TrainOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    make_set(data_);
    ::setenv("LD_LIBRARY_PATH", (emulated() + "/lib").c_str(), 1);  // where the driver is
  }

  std::vector<std::string> start(const std::string& out, const std::string& precision) const {
    std::vector<std::string> arguments = with(short_run(data_, out), "--precision", precision,
                                              "--deterministic", "--plan-cache", "off");
    *std::find(arguments.begin(), arguments.end(), "cpu") = "cuda";
    return arguments;
  }
  void train(const std::vector<std::string>& arguments) const {
    const Ended ended = run(arguments, with_cuda());
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", a_ = folder_ / "a", b_ = folder_ / "b";
};

TEST_F(TrainOnCuda, IsChosenAndReportedByAuto) {
  std::vector<std::string> arguments = with(short_run(data_, a_), "--plan-cache", "off");
  *std::find(arguments.begin(), arguments.end(), "cpu") = "auto";
  const Ended ended = run(arguments, with_cuda());
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("device: cuda, "), Not(HasSubstr("not CUDA"))));
  EXPECT_EQ(read_json(a_ + "/config.json")["device"]["backend"], "cuda");
}

TEST_F(TrainOnCuda, GivesTheBitsOfItsCallsOneByOne) {
  for (const auto& [precision, steps] : {std::pair{"fp32", "1"}, std::pair{"fp16", "4"}}) {
    if (testing_support::sanitized() && std::string_view(precision) == "fp32") continue;
    SCOPED_TRACE(precision);
    train(with(start(a_, precision), "--overwrite", "--steps-per-launch", steps));
    train(with(start(b_, precision), "--overwrite", "--no-graph"));
    const auto graph = checkpoints(a_), calls = checkpoints(b_);
    ASSERT_EQ(graph.size(), calls.size());
    EXPECT_TRUE(tensors(graph.back()) == tensors(calls.back()));
    EXPECT_EQ(timeless_metrics(a_), timeless_metrics(b_));
  }
}

TEST_F(TrainOnCuda, RefusesWindowsOfStepsThatShareLaunches) {
  const Ended ended =
      run(with(start(a_, "fp32"), "--steps-per-launch", "8", "--profile", "spans"), with_cuda());
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("record them with --steps-per-launch 1, or use --profile steps"));
}

TEST_F(TrainOnCuda, LearnsWhatTheCpuLearns) {
  train(start(a_, "fp32"));
  const Ended ended = run(with(short_run(data_, b_), "--exact-math"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto cuda = metrics(a_), cpu = metrics(b_);
  ASSERT_EQ(cuda.size(), cpu.size());
  for (std::size_t i = 0; i < cuda.size(); ++i) {
    ASSERT_EQ(cuda[i]["kind"], cpu[i]["kind"]);
    const double loss = cpu[i]["loss"];
    // A loss near 0 is a difference of logits of size 10, and of their rounding errors.
    EXPECT_NEAR(cuda[i]["loss"].get<double>(), loss, 1e-4 * loss + 1e-6) << cpu[i].dump();
  }
}

TEST_F(TrainOnCuda, LearnsTheSameInEveryTierAndWhoeverNormalises) {
  const std::vector<std::string> recipe{
      "--transforms", "random-crop=8:pad=2,flip,contrast=0.2,random-mask=0.1:dilate"};
  for (const char* precision : {"fp32", "bf16"}) {
    if (testing_support::sanitized() && std::string_view(precision) == "fp32") continue;
    SCOPED_TRACE(precision);
    const auto way = [&](const std::string& out, const char* option, const char* value) {
      std::vector<std::string> arguments =
          with(start(out, precision), "--overwrite", option, value);
      arguments.insert(arguments.end(), recipe.begin(), recipe.end());
      train(arguments);
    };
    way(a_, "--tier", "auto");
    EXPECT_EQ(read_json(a_ + "/config.json")["loader"]["tier"], "resident");
    for (const char* tier : {"mapped", "decoded"}) {
      way(b_, "--tier", tier);
      EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back())) << tier;
      EXPECT_EQ(timeless_metrics(a_), timeless_metrics(b_));
    }
    way(b_, "--normalize", "cpu");
    if (std::string(precision) == "fp32") {
      EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
    }
    const Json copies = read_json(b_ + "/summary.json")["loading"]["to_device"];
    EXPECT_GE(copies["batches"], 12);
    EXPECT_GT(copies["bytes"], 12 * 32 * 8 * 8 * 3 * 4);
  }
}

TEST_F(TrainOnCuda, MixesRowsAndPutsUpWithBrokenSamples) {
  put(data_ + "/train/" + file_name(5), std::string("not an image"));
  const auto more = [&](const std::string& out, const char* tier) {
    return with(start(out, "fp32"), "--overwrite", "--tier", tier, "--transforms", "flip,mixup=1",
                "--data-errors", "mask", "--max-bad", "0.01", "--limit-batches", "4");
  };
  train(more(a_, "auto"));
  const Json loader = read_json(a_ + "/config.json")["loader"];
  EXPECT_EQ(loader["tier"], "mapped");
  EXPECT_THAT(loader["tier_because"].get<std::string>(),
              HasSubstr("some images are broken or unlike the others"));
  train(more(b_, "decoded"));
  EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
  // The copier runs ahead of the steps; errors that it meets there do not belong to the run.
  EXPECT_EQ(read_json(a_ + "/summary.json")["bad_rows"],
            read_json(b_ + "/summary.json")["bad_rows"]);
}

TEST_F(TrainOnCuda, ShowsTheLossScaleOfFp16Alone) {
  train(start(a_, "fp16"));
  train(start(b_, "bf16"));
  for (const Json& line : metrics(a_)) {
    if (line["kind"] != "step") continue;
    EXPECT_EQ(line["loss_scale"], 65536);
    EXPECT_EQ(line["skipped_steps"], 0);
    EXPECT_GT(line["kernels_ms"].get<double>(), 0);
  }
  for (const Json& line : metrics(b_)) EXPECT_FALSE(line.contains("loss_scale"));
}

TEST_F(TrainOnCuda, ContinuesBitForBitAfterAnInterruption) {
  train(with(start(a_, "fp16"), "--checkpoint-every", "4"));
  Program program(with(start(b_, "fp16"), "--checkpoint-every", "4"), with_cuda());
  ASSERT_TRUE(program.wait_until([&] { return !checkpoints(b_).empty(); }));
  program.signal(SIGKILL);
  ASSERT_EQ(program.wait().signal, SIGKILL) << "it ended before the kill";
  train({"train", "--resume", b_});
  EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
}

TEST_F(TrainOnCuda, ContinuesInAnotherPrecision) {
  const auto slowly = [&](const std::string& out) {
    std::vector<std::string> arguments = start(out, "fp32");
    *std::find(arguments.begin(), arguments.end(), "1e-3") = "1e-5";
    return arguments;
  };
  train(slowly(a_));
  const auto resume = [&](const char* precision, const char* epochs) {
    const Ended ended =
        run({"train", "--resume", a_, "--precision", precision, "--epochs", epochs}, with_cuda());
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(resume("fp16", "3"),
              AllOf(HasSubstr("--precision fp16: the run was in fp32 so far"),
                    HasSubstr("its loss scale starts over"), HasSubstr("the bits will differ")));
  EXPECT_THAT(resume("fp16", "4"), Not(HasSubstr("--precision fp16: ")));
  EXPECT_THAT(resume("fp32", "5"), AllOf(HasSubstr("--precision fp32: the run was in fp16 so far"),
                                         Not(HasSubstr("loss scale"))));
  EXPECT_THAT(resume("bf16", "6"), HasSubstr("the run was in fp32 so far"));
  std::vector<std::string> alone = slowly(b_);
  *std::find(alone.begin(), alone.end(), "2") = "6";
  train(alone);
  const auto mixed = metrics(a_), fp32 = metrics(b_);
  ASSERT_EQ(mixed.size(), fp32.size());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    const Json& line = mixed[i];
    const std::uint64_t step = line["step"];
    EXPECT_EQ(line["step"], fp32[i]["step"]);
    const double loss = fp32[i]["loss"];
    EXPECT_NEAR(line["loss"].get<double>(), loss, 1e-2 * loss) << step;
    if (line["kind"] != "step") continue;
    EXPECT_EQ(line.contains("loss_scale"), step > 12 && step <= 24) << step;
    EXPECT_EQ(line.value("loss_scale", 65536.0), 65536) << step;
  }
  EXPECT_NE(mixed.back()["loss"], fp32.back()["loss"]);
}

TEST_F(TrainOnCuda, EndsWhenNoLossScaleHelps) {
  std::vector<std::string> arguments = with(start(a_, "fp16"), "--overwrite");
  *std::find(arguments.begin(), arguments.end(), "32") = "8";
  *std::find(arguments.begin(), arguments.end(), "1e-3") = "1e5";  // overflows in fp16
  const Ended ended = run(arguments, with_cuda());
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the loss is nan in step 19 (epoch 1, step 19 of 24"),
                    HasSubstr("though the loss scale is down to 0.5: the last 18 steps made no "),
                    HasSubstr("no checkpoint was saved before")));
  const Ended checked = run(with(arguments, "--check-numerics"), with_cuda());
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.err, AllOf(HasSubstr("step 1: update_all (update; "), HasSubstr(" copy: "),
                                 HasSubstr("inf of "), HasSubstr("learning rate 100000")));
}

TEST_F(TrainOnCuda, LooksAtEveryCallOnRequest) {
  for (const char* precision : {"fp32", "fp16"}) {
    train(with(start(a_, precision), "--overwrite"));
    train(with(start(b_, precision), "--overwrite", "--check-numerics"));
    EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
    EXPECT_EQ(timeless_metrics(a_), timeless_metrics(b_));
  }
}

TEST_F(TrainOnCuda, SaysWhereAttentionHasNoTensorCores) {
  const std::string text = folder_ / "text";
  std::filesystem::create_directories(text);
  for (const char* name : {"train.bin", "val.bin"})
    std::ofstream(text + "/" + name, std::ios::binary) << std::string(600, '\0');
  for (const auto& [precision, notes] : {std::pair{"fp32", 1}, std::pair{"bf16", 0}}) {
    const Ended ended =
        run({"train",          "gpt2-nano", "--data",     text,   "--model-option", "layers=1",
             "--model-option", "width=32",  "--sequence", "16",   "--batch",        "2",
             "--steps",        "1",         "--device",   "cuda", "--precision",    precision,
             "--plan-cache",   "off",       "--out",      a_,     "--overwrite"},
            with_cuda());
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const std::string begin = "note: 2 of 2 calls of attention run on our own kernels";
    const std::size_t first = ended.err.find(begin);
    EXPECT_EQ(first != std::string::npos, notes == 1) << ended.err;
    if (notes == 1) {
      EXPECT_EQ(ended.err.find(begin, first + 1), std::string::npos) << ended.err;
    }
  }
}

// Own kernels beside a library's are measured for the batch that was asked for alone.
TEST_F(TrainOnCuda, MeasuresNothingInSearchOfABatchThatFits) {
  const auto plans_of = [&](const std::string& folder, int exit_code) {
    std::vector<std::string> arguments = with(start(a_, "fp16"), "--overwrite", "--autotune");
    *(std::ranges::find(arguments, "--plan-cache") + 1) = folder;
    const Ended ended = run(arguments, with_cuda());
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    if (exit_code != 0) {
      EXPECT_THAT(ended.err, HasSubstr("not even --batch 1 fits"));
    }
    std::set<std::string> plans;
    for (const auto& plan : std::filesystem::directory_iterator(folder))
      plans.insert(plan.path().filename());
    return plans;
  };
  const std::set<std::string> fitting = plans_of(folder_ / "fitting", 0);
  EXPECT_FALSE(fitting.empty());
  ::setenv("WARPSTEP_FREE_BYTES", "1000000", 1);
  EXPECT_EQ(plans_of(folder_ / "refused", 1), fitting);
  ::unsetenv("WARPSTEP_FREE_BYTES");
}

TEST_F(TrainOnCuda, IsEvaluatedToTheSameAccuracy) {
  train(start(a_, "fp16"));
  const Ended ended = run({"eval", a_, "--json"}, with_cuda());
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(Json::parse(ended.out)["accuracy"],
            read_json(a_ + "/summary.json")["test"]["accuracy"]);
}

}  // namespace
}  // namespace warpstep::system_test
