// `warpstep explain` as a user runs it: exit codes, what goes to stdout and what to stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tests/command_output.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result run(const std::string& arguments, bool messages = false) {
  return run_command("explain", arguments, messages);
}

TEST(ExplainCommand, PrintsCallsMemoryAndTotals) {
  const Result result = run("cifar10cnn --batch 16 --device ref");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(
      result.text,
      AllOf(HasSubstr("training step, batch 16, fp32, adam"), HasSubstr("29 calls on ref"),
            HasSubstr("conv1/conv 3x3 p1 +bias +relu"), HasSubstr("4,311,754 in 12 tensors"),
            HasSubstr("peak at call"), HasSubstr("totals")));
}

TEST(ExplainCommand, FollowsItsOptions) {
  EXPECT_THAT(
      run("mlp --eval --device ref").text,
      AllOf(HasSubstr("evaluation step"), Not(HasSubstr("backward")), Not(HasSubstr("gradients"))));
  EXPECT_THAT(run("mlp --device ref --no-fuse linear+relu --no-fuse updates").text,
              AllOf(HasSubstr("without linear+relu, without updates"), HasSubstr("fc1/relu"),
                    HasSubstr("fc1.weight/update")));
  EXPECT_THAT(run("mlp --device ref --optimizer sgd").text, Not(HasSubstr("moments")));
  EXPECT_THAT(run("mlp --device ref --optimizer sgd --momentum 0.9").text,
              HasSubstr("1 per parameter"));
  EXPECT_THAT(run("mlp --device ref --precision bf16").text, HasSubstr("128x512:bf16"));
  EXPECT_THAT(
      run("mlp --device ref --accumulate 4 --clip-norm 1 --ema 0.9 --label-smoothing 0.1"
          " --optimizer sgd --momentum 0.9 --nesterov --weight-decay 0.01")
          .text,
      AllOf(HasSubstr("accumulate 4 steps"), HasSubstr("clip at norm 1"),
            HasSubstr("average decay 0.9"), HasSubstr("+smoothing 0.1"), HasSubstr("nesterov")));
}

TEST(ExplainCommand, PrintsTheSavingsOfFusions) {
  const std::string text = run("cifar10cnn --device ref").text;
  EXPECT_THAT(text, testing::ContainsRegex("fusions +calls +bytes"));
  EXPECT_THAT(text, testing::ContainsRegex("step without any +[0-9]+ +[0-9.]+ MiB +100.0 %"));
  EXPECT_THAT(text, testing::ContainsRegex("\n    relu.pool +-[0-9]+ +-[0-9.]+ MiB +-[0-9.]+ %"));
  EXPECT_THAT(text, Not(HasSubstr("norm+relu"))) << "the model has no norms";
  const auto json = nlohmann::json::parse(run("cifar10cnn --device ref --json").text);
  const auto& fusions = json["fusions"];
  EXPECT_EQ(fusions["fused"]["calls"], json["totals"]["step"]["calls"]);
  EXPECT_GT(fusions["unfused"]["bytes"], fusions["fused"]["bytes"]);
  for (const auto& row : fusions["rows"])
    EXPECT_GE(row["without"]["bytes"], fusions["fused"]["bytes"]);
}

TEST(ExplainCommand, PrintsTheSavingsOfRecomputing) {
  EXPECT_THAT(run("cifar10cnn --device ref --recompute conv1 --recompute conv2").text,
              testing::ContainsRegex("recompute conv1, conv2: arena [0-9.]+ -> [0-9.]+ MiB, "
                                     "[0-9.]+ % more FLOPs"));
  EXPECT_THAT(run("cifar10cnn --device ref").text, Not(HasSubstr("recompute")));
  const Result unknown = run("cifar10cnn --device ref --recompute cnv1", true);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("did you mean conv1?"));
}

// It is to say what would not fit.
TEST(ExplainCommand, NeedsNoArena) {
  if (testing_support::sanitized()) GTEST_SKIP() << "sanitizers map terabytes";
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limited{rlim_t{4} << 30, before.rlim_max};
  setrlimit(RLIMIT_AS, &limited);
  const Result result = run("resnet50 --batch 128 --device cpu");
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, HasSubstr("peak at call"));
}

TEST(ExplainCommand, SpeaksJson) {
  const auto json =
      nlohmann::json::parse(run("mlp --device ref --batch 4 --classes 7 --json").text);
  EXPECT_EQ(json["inputs"][0]["shape"], nlohmann::json({4, 28, 28, 1}));
  EXPECT_EQ(json["totals"]["parameters"], 784 * 512 + 512 + 512 * 512 + 512 + 512 * 7 + 7);
  const std::string weighted = "mlp --device ref --batch 4 --class-weights 1,2,3,4,1,1,1 --json";
  EXPECT_EQ(nlohmann::json::parse(run(weighted).text)["totals"]["parameters"],
            json["totals"]["parameters"])
      << "a class for each weight";
}

TEST(ExplainCommand, ExplainsItsRefusals) {
  const auto expect = [](const char* arguments, int code, const char* message) {
    const Result result = run(arguments, true);
    EXPECT_EQ(result.code, code) << arguments;
    EXPECT_THAT(result.text, HasSubstr(message));
  };
  expect("cifar10cn --device ref", 2, "did you mean cifar10cnn?");
  expect("mlp --no-fuse linear+rule", 2, "no fusion is called 'linear+rule'; there are relu+pool");
  expect("mlp --precision fp8", 2, "no precision is called 'fp8'");
  expect("mlp --device tpu", 2, "no backend is called 'tpu'");
  expect("mlp --batch 0", 2, "--batch");
  expect("mlp --momentum 0.9", 2, "--momentum goes with --optimizer sgd, lars or rmsprop");
  expect("", 2, "model");
}

}  // namespace
}  // namespace warpstep
