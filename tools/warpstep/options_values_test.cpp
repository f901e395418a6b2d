// What the values of options mean, and which of them have no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tools/warpstep/options.h"

namespace warpstep::tools {
namespace {

// A command line with these words, and what it typed.
struct CommandLine {
  Parser parser;
  RunOptions typed;
  explicit CommandLine(const std::vector<std::string>& words) {
    declare_run_options(parser, typed, train_only);
    parser.parse(words);
  }
};

TEST(Options, OfAScheduleCountEpochsInBatches) {
  const auto rates = [](std::vector<std::string> words, std::int64_t epoch_steps) {
    for (const char* word :
         {"--lr", "1", "--lr-schedule", "step", "--lr-step-epochs", "1", "--lr-gamma", "0.5"})
      words.emplace_back(word);
    const CommandLine line(words);
    const Schedule schedule = schedule_of(line.typed, 10 * epoch_steps, epoch_steps);
    std::vector<double> found;
    for (std::int64_t update = 0; update < 6; ++update)
      found.push_back(learning_rate(schedule, update));
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(rates({"mlp", "--accumulate", "4"}, 10), ElementsAre(1, 1, 1, 0.5, 0.5, 0.25));
  EXPECT_THAT(rates({"mlp", "--accumulate", "8"}, 3),
              ElementsAre(1, 0.25, 0.03125, 0.00390625, 0.0009765625, 0.0001220703125));
  // Of 37 steps the last makes no update.
  const CommandLine cycle({"mlp", "--accumulate", "4", "--lr", "1", "--lr-schedule", "one-cycle"});
  const Schedule schedule = schedule_of(cycle.typed, 37, 37);
  EXPECT_EQ(schedule.total_steps, 9);
  EXPECT_LT(learning_rate(schedule, 8), 1e-4);
  const CommandLine line({"mlp", "--limit-batches", "5"});
  EXPECT_EQ(steps_of_epoch(line.typed, 8), 5U);
  EXPECT_EQ(steps_of_epoch(line.typed, 3), 3U);
}

// Two epochs of 8 steps each, before those of 4 or 16.
TEST(Options, OfALengthCountEpochsAsTheyWere) {
  const Progress after_two{.step = 16, .next = {2, 0}}, midway{.step = 18, .next = {2, 2}};
  const auto total = [](const std::vector<std::string>& words, std::uint64_t epoch_steps,
                        const Progress& at) {
    CommandLine line(words);
    settle_length(line.parser, false, line.typed);
    return total_steps(line.typed, epoch_steps, at);
  };
  const std::vector<std::string> four{"mlp", "--epochs", "4"};
  EXPECT_EQ(total(four, 8, {}), 32U);
  EXPECT_EQ(total(four, 8, after_two), 32U) << "they had the same length";
  EXPECT_EQ(total(four, 4, after_two), 24U);
  EXPECT_EQ(total(four, 4, midway), 24U);
  EXPECT_EQ(total(four, 16, after_two), 48U);
  EXPECT_EQ(total({"mlp", "--epochs", "2"}, 4, after_two), 16U) << "it is at its end";
  EXPECT_EQ(total({"mlp", "--epochs", "1"}, 4, after_two), 16U) << "and past it";
  EXPECT_EQ(total({"mlp", "--epochs", "4", "--steps", "20"}, 4, after_two), 20U);
  EXPECT_EQ(total({"mlp", "--steps", "20"}, 4, after_two), 20U);

  const CommandLine step(
      {"mlp", "--lr", "1", "--lr-schedule", "step", "--lr-step-epochs", "3", "--lr-gamma", "0.5"});
  const auto rates = [&](std::int64_t epoch_steps, const std::vector<std::int64_t>& steps) {
    const Schedule schedule = schedule_of(step.typed, 100, epoch_steps, after_two);
    std::vector<double> found;
    for (const std::int64_t at : steps) found.push_back(learning_rate(schedule, at));
    return found;
  };
  using testing::ElementsAre;
  EXPECT_EQ(schedule_of(step.typed, 100, 8, after_two), schedule_of(step.typed, 100, 8));
  EXPECT_THAT(rates(4, {16, 19, 20, 31, 32}), ElementsAre(1, 1, 0.5, 0.5, 0.25));
  EXPECT_THAT(rates(16, {16, 31, 32, 79, 80}), ElementsAre(1, 1, 0.5, 0.5, 0.25));
}

// A cut after each epoch. The warm-up of 12 steps took an epoch and a half of 8, whatever the
// length of those after the second.
TEST(Options, OfAWarmUpMoveNoCut) {
  const CommandLine line({"mlp", "--lr", "1", "--lr-schedule", "step", "--lr-step-epochs", "1",
                          "--lr-gamma", "0.5", "--warmup-steps", "12"});
  const Progress after_three{.step = 24, .next = {3, 0}};
  const double before = learning_rate(schedule_of(line.typed, 100, 8), 23);
  EXPECT_EQ(before, 0.25);
  for (const std::int64_t epoch_steps : {1, 4, 8, 16, 50}) {
    const Schedule schedule = schedule_of(line.typed, 1000, epoch_steps, after_three);
    for (std::int64_t step = 0; step < 3 * epoch_steps; ++step)
      EXPECT_EQ(learning_rate(schedule, 24 + step),
                before * std::pow(0.5, static_cast<double>(1 + step / epoch_steps)))
          << step << " steps of " << epoch_steps << " an epoch later";
  }
}

TEST(Options, WithoutEffectAreNamed) {
  const auto useless = [](const std::vector<std::string>& words, bool is_text = false,
                          std::string_view backend = "cpu", std::uint64_t steps_done = 0) {
    const CommandLine line(words);
    return useless_options(line.parser, line.typed, is_text, backend, steps_done);
  };
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(useless({"mlp", "--data", "set"}), IsEmpty());
  EXPECT_THAT(useless({"mlp", "--rms-alpha", "0.9", "--lr-gamma", "0.5", "--min-delta", "0.1"}),
              ElementsAre("--lr-gamma has no effect without --lr-schedule step",
                          "--rms-alpha has no effect without --optimizer rmsprop",
                          "--min-delta has no effect without --patience"));
  EXPECT_THAT(useless({"mlp", "--optimizer", "rmsprop", "--rms-alpha", "0.9", "--lr-schedule",
                       "step", "--lr-gamma", "0.5", "--patience", "2", "--min-delta", "0.1"}),
              IsEmpty());
  EXPECT_THAT(useless({"gpt2", "--transforms", "flip"}, true),
              ElementsAre("--transforms has no effect without images"));
  EXPECT_THAT(useless({"mlp", "--val-seed", "7"}),
              ElementsAre("--val-seed has no effect without --val-split"));
  EXPECT_THAT(useless({"mlp", "--val-seed", "7", "--val-split", "0.1"}), IsEmpty());
  EXPECT_THAT(useless({"mlp", "--sequence", "64"}),
              ElementsAre("--sequence has no effect without text"));
  EXPECT_THAT(
      useless({"gpt2", "--shuffle", "none", "--tier", "mapped", "--normalize", "cpu",
               "--data-errors", "skip", "--max-bad", "0.5"},
              true),
      ElementsAre("--shuffle has no effect without images", "--tier has no effect without images",
                  "--normalize has no effect without images",
                  "--data-errors has no effect without images",
                  "--max-bad has no effect without images"));
  const std::vector<std::string> of_a_job{"mlp", "--sync-bn", "--shard-optimizer", "on"};
  EXPECT_THAT(useless(of_a_job),
              ElementsAre("--sync-bn has no effect without several ranks",
                          "--shard-optimizer has no effect without several ranks"));
  const std::vector<std::string> of_a_gpu{
      "mlp", "--autotune", "--steps-per-launch", "4", "--no-graph", "--workspace-mib", "64"};
  EXPECT_THAT(useless(of_a_gpu),
              ElementsAre("--autotune has no effect without a CUDA device",
                          "--steps-per-launch has no effect without a CUDA device",
                          "--no-graph has no effect without a CUDA device",
                          "--workspace-mib has no effect without a CUDA device"));
  EXPECT_THAT(useless(of_a_gpu, false, "cuda"), IsEmpty());
  EXPECT_THAT(useless({"mlp", "--eval-first", "on"}), IsEmpty());
  EXPECT_THAT(useless({"mlp", "--eval-first", "off"}, false, "cpu", 8), IsEmpty());
  EXPECT_THAT(useless({"mlp", "--eval-first", "on"}, false, "cpu", 8),
              ElementsAre("--eval-first on has no effect on a run that continues after step 8"));
  EXPECT_THAT(useless({"mlp", "--profile-schedule", "active=9"}),
              ElementsAre("--profile-schedule has no effect without --profile spans or deep"));
  EXPECT_THAT(useless({"mlp", "--lr-gamma", "0.1", "--shuffle", "full"}, true), IsEmpty())
      << "defaults, as in the config.json of a run";
}

TEST(Options, OfTheOrderOfSamplesAreOfTraining) {
  for (const auto& [command, has] : {std::pair(train_only, true), {eval_only, false}}) {
    CommandLine line({});
    Parser parser;
    declare_run_options(parser, line.typed, command);
    EXPECT_EQ(parser.has("--shuffle"), has);
  }
}

TEST(Options, OfTheUpdateAreOneLine) {
  const auto text = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"mlp", "--lr", "0.1"});
    return update_text(CommandLine(words).typed);
  };
  EXPECT_EQ(text({}), "adam, lr 0.1");
  EXPECT_EQ(text({"--moments", "fp32"}), "adam, lr 0.1");
  EXPECT_EQ(text({"--moments", "bf16"}), "adam, lr 0.1, moments in bf16");
  EXPECT_EQ(text({"--moments", "bf16", "--optimizer", "rmsprop"}),
            "rmsprop, lr 0.1, moments in bf16");
  EXPECT_EQ(text({"--moments", "bf16", "--optimizer", "sgd", "--momentum", "0.9", "--nesterov",
                  "--weight-decay", "0.5", "--decay", "matrices", "--lr-schedule", "cosine"}),
            "sgd, lr 0.1 (cosine), momentum 0.9 (nesterov), weight decay 0.5 (of matrices), "
            "moments in bf16");
  EXPECT_EQ(text({"--moments", "bf16", "--optimizer", "sgd"}), "sgd, lr 0.1") << "it has none";
}

TEST(Options, CheckedNumericsNeedUnsharedMoments) {
  RunOptions options;
  options.shard_optimizer = "on";
  EXPECT_TRUE(shards_optimizer(options, "cpu", 2));
  options.check_numerics = true;
  EXPECT_FALSE(shards_optimizer(options, "cpu", 2));
}

}  // namespace
}  // namespace warpstep::tools
