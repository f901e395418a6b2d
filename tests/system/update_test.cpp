// The options of loss and update in a run of the program: its files, evaluations and resumption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class UpdateOptions : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  std::vector<std::string> with_all(const std::string& out) const {
    return with(short_run(data_, out, "mlp"), "--optimizer", "lars", "--momentum", "0.9", "--trust",
                "0.02", "--weight-decay", "1e-4", "--label-smoothing", "0.1", "--class-weights",
                weights_, "--clip-norm", "0.5", "--accumulate", "4", "--ema", "0.8",
                "--checkpoint-every", "3", "--keep-checkpoints", "0");
  }
  Json evaluated(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"eval", out, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return Json::parse(ended.out);
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string out_ = folder_ / "run";
  const std::string weights_ = "1,2,0.5";
};

TEST_F(UpdateOptions, ARunHasThemAll) {
  const Ended ended = run(with_all(out_));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json config = read_json(out_ + "/config.json");
  EXPECT_EQ(config["options"]["class_weights"].size(), 3U);
  EXPECT_EQ(config["options"]["ema"], 0.8);
  Json validation;
  int updates = 0;
  for (const Json& line : metrics(out_)) {
    if (line["kind"] == "evaluation") validation = line;
    if (line["kind"] != "step") continue;
    const bool update = line["step"].get<int>() % 4 == 0;
    EXPECT_EQ(line.contains("gradient_norm"), update) << line.dump();
    updates += update ? 1 : 0;
  }
  EXPECT_GT(updates, 1);
  // The average was evaluated, by the run and by eval.
  EXPECT_NEAR(evaluated(out_, {})["loss"].get<double>(), validation["loss"].get<double>(), 1e-9);
  EXPECT_NE(evaluated(out_, {"--no-ema"})["loss"], validation["loss"]);
  // A mean by class weights over the whole set, not of the batches' means.
  EXPECT_NEAR(evaluated(out_, {"--batch", "7"})["loss"].get<double>(),
              validation["loss"].get<double>(), 1e-6);
  const Tensors saved = tensors(checkpoints(out_).back());
  EXPECT_TRUE(saved.contains("ema.fc1.weight"));
  EXPECT_TRUE(saved.contains("optimizer.momentum_buffer.fc1.weight"));
}

// Rows of a class of weight 0 have the terms of label smoothing, also in batches of theirs alone.
TEST_F(UpdateOptions, ClassesOfWeightZeroCountAlikeInBatchesOfAnySize) {
  const Ended ended = run(with(short_run(data_, out_, "mlp"), "--label-smoothing", "0.3",
                               "--class-weights", "0,2,0.5", "--steps", "3"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* device : {"cpu", "ref"}) {
    const auto loss = [&](const char* batch) {
      return evaluated(out_, {"--device", device, "--batch", batch})["loss"].get<double>();
    };
    const double together = loss("96");
    EXPECT_NEAR(loss("1"), together, 1e-5) << device;
    EXPECT_NEAR(loss("7"), together, 1e-5) << device;
  }
}

// A model may know more tokens than the data have: no label is one of them.
TEST_F(UpdateOptions, ClassWeightsOfTextAreThoseOfTheData) {
  const std::string tokens = folder_ / "tokens";
  std::string ids;
  for (int i = 0; i < 200; ++i) ids += {static_cast<char>(i % 3), '\0'};
  for (const char* split : {"/train.bin", "/val.bin"}) put(tokens + split, ids);
  const Ended ended = run({"train",           "gpt2-nano",
                           "--data",          tokens,
                           "--model-option",  "layers=1",
                           "--model-option",  "width=32",
                           "--model-option",  "vocabulary=5",
                           "--sequence",      "8",
                           "--batch",         "4",
                           "--steps",         "2",
                           "--device",        "cpu",
                           "--class-weights", "1,2,0.5",
                           "--out",           out_});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NEAR(evaluated(out_, {})["loss"].get<double>(),
              read_json(out_ + "/summary.json")["test"]["loss"].get<double>(), 1e-9);
  EXPECT_EQ(tensors(checkpoints(out_).back()).at("wte.weight").size(), 4U * 5 * 32);
  std::vector<std::string> explain{"explain",         "gpt2-nano", "--batch",  "1",
                                   "--class-weights", "1,2,0.5",   "--device", "ref"};
  EXPECT_THAT(run(explain).out, HasSubstr("vocabulary of 3"));
  explain.insert(explain.end(), {"--model-option", "vocabulary=3"});
  const Ended explained = run(explain);
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
}

// Also in the middle of an accumulation.
TEST_F(UpdateOptions, AResumedRunEndsWithTheSameBits) {
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run(with_all(alone)).exit_code, 0);
  const Ended begun = run(with(with_all(out_), "--steps", "7"));
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("note: the last 3 steps of the run update no weights"));
  const Ended resumed = run({"train", "--resume", out_, "--steps", "0"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(tensors(checkpoints(alone).back()), tensors(checkpoints(out_).back()));
  const Ended refused = run({"train", "--resume", out_, "--accumulate", "2", "--epochs", "9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--accumulate 2: the run in " + out_ + " has 4"));
}

TEST_F(UpdateOptions, AFlagOfARunIsTakenBack) {
  ASSERT_EQ(
      run(with(short_run(data_, out_), "--optimizer", "sgd", "--momentum", "0.9", "--nesterov"))
          .exit_code,
      0);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"train", "--config", out_ + "/config.json", "--out", folder_ / "adamw", "--optimizer",
            "adamw", "--momentum", "0"},
           {"train", "--resume", out_, "--epochs", "3", "--momentum", "0"}}) {
    const Ended refused = run(command);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--no-nesterov"));
    const Ended ended = run(with(command, "--no-nesterov"));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_EQ(read_json(out_ + "/config.json")["options"]["nesterov"], false);
}

TEST_F(UpdateOptions, WhatCannotBeMeantIsRefused) {
  struct Wrong {
    std::vector<std::string> options;
    std::string message;
  };
  for (const Wrong& wrong : std::vector<Wrong>{
           {{"--class-weights", "1,2"}, "--class-weights has 2 values, but the data have 3"},
           {{"--class-weights", "1,-2"}, "'-2' is not a number that is 0 or from 1e-30 to 1e30"},
           {{"--class-weights", "1e-38,1,1"}, "'1e-38' is not a number that is 0 or from"},
           {{"--class-weights", "1,1,1e38"}, "'1e38' is not a number that is 0 or from"},
           {{"--label-smoothing", "1.5"}, "'1.5' is not a number from 0 to 1"},
           {{"--ema", "1"}, "'1' is not a number from 0 to below 1"},
           {{"--accumulate", "0"}, "'0' is not a whole number from 1 to"},
           {{"--accumulate", "100", "--steps", "4"},
            "--accumulate 100 is longer than the run of 4 steps: it would never update"},
           {{"--clip-norm", "-1"}, "'-1' is not a number of at least 0"},
           {{"--loss", "mse"}, "'mse' is not one of cross_entropy, nll"},
           {{"--optimizer", "lars", "--trust", "0"}, "nothing but biases would be trained"},
           {{"--warmup-steps", "3", "--accumulate", "4", "--steps", "10"},
            "--warmup-steps 3 takes the whole run of 2 updates"}}) {
    std::vector<std::string> arguments{"train", "mlp", "--data", data_, "--out", out_};
    arguments.insert(arguments.end(), wrong.options.begin(), wrong.options.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(wrong.message));
  }
}

TEST_F(UpdateOptions, ALossThatIsNoneOfLogProbabilitiesIsNotedOnce) {
  const auto noted = [](const Ended& ended) {
    const std::string note = "; --loss cross_entropy takes any outputs\n";
    std::size_t count = 0;
    for (std::size_t at = 0; (at = ended.err.find(note, at)) != std::string::npos; ++count) ++at;
    return count;
  };
  const Ended raw = run(with(short_run(data_, out_), "--loss", "nll"));
  ASSERT_EQ(raw.exit_code, 0) << raw.err;
  EXPECT_EQ(noted(raw), 1U) << raw.err;
  EXPECT_THAT(raw.err, ContainsRegex("note: the loss is -[0-9.]+ in step [0-9]+, but that of "
                                     "log-probabilities cannot be below 0: the outputs of mlp"));
  EXPECT_EQ(noted(run(short_run(data_, folder_ / "usual"))), 0U);
}

TEST_F(UpdateOptions, GradientsThatAreNotFiniteEndTheRun) {
  std::vector<std::string> arguments =
      with(short_run(data_, out_), "--optimizer", "sgd", "--clip-norm", "1e9");
  *std::find(arguments.begin(), arguments.end(), "1e-3") = "1e38";
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("the loss is nan in step "), HasSubstr("training diverged")));
}

// LARS's rate of a layer, |w| / |g| times the coefficient, multiplies a gradient before --lr does.
TEST_F(UpdateOptions, ATrustCoefficientThatOverflowsGradientsIsNamed) {
  const Ended ended =
      run(with(short_run(data_, out_, "mlp"), "--optimizer", "lars", "--trust", "1e38"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(" are not finite in step 1 "),
                               HasSubstr("training diverged: use a lower --trust, a lower --lr")));
}

}  // namespace
}  // namespace warpstep::system_test
