#include "profiler/analysis/whole_run.h"

#include <gmock/gmock.h>
#include <cmath>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::Case;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SessionBuilder;
using ::testing::StartsWith;

// Times in us.
void add(SessionBuilder& builder, const char* name, double begin, double end, std::uint64_t arg = 0,
         std::uint32_t depth = 0, double us = 0) {
  builder.raw().phases.push_back({SessionBuilder::at(begin), SessionBuilder::at(end),
                                  static_cast<std::uint64_t>(1000 * (us > 0 ? us : end - begin)),
                                  arg, builder.name(Kind::range, name), depth});
}

std::vector<std::pair<std::string, double>> in_us(const std::vector<RunPart>& parts) {
  std::vector<std::pair<std::string, double>> all;
  for (const RunPart& part : parts) all.emplace_back(part.name, part.ns / 1000);
  return all;
}

// Start 100, steps with the wait for the first batch, a checkpoint of three parts, a gap, an end.
SessionBuilder a_run() {
  SessionBuilder builder;
  builder.step(1, 120, 200).step(2, 200, 300);
  add(builder, "start", 0, 100);
  add(builder, "first batch", 120, 150, 0, 1);
  add(builder, "steps", 120, 300, 1);
  add(builder, "gather", 300, 340, 2, 1, 30);
  add(builder, "write", 310, 350, 2, 1, 20);
  add(builder, "checkpoint", 300, 400, 2);
  add(builder, "end", 450, 500);
  return builder;
}

TEST(WholeRun, PartsAddUpToTheWallTime) {
  const WholeRun run = whole_run(a_run().build());
  EXPECT_EQ(run.wall_ns, 500e3);
  EXPECT_EQ(run.first_step_ns, 200e3);
  using P = std::pair<std::string, double>;
  EXPECT_THAT(in_us(run.parts), ElementsAre(P("start", 100), P("first batch", 30), P("steps", 150),
                                            P("checkpoint", 100), P("end", 50), P("other", 70)));
  double sum = 0;
  for (const RunPart& part : run.parts) sum += part.ns;
  EXPECT_EQ(sum, run.wall_ns);
  EXPECT_THAT(in_us(run.part("checkpoint")->parts),
              ElementsAre(P("gather", 30), P("write", 20), P("other", 50)));
  EXPECT_EQ(run_table(run).rows.size(), 9U);
}

TEST(WholeRun, OfAKilledRunHasTheStepsAfterItsLastPhase) {
  SessionBuilder builder;
  add(builder, "start", 0, 100);
  builder.step(1, 100, 200).step(2, 200, 320).sample("cpu %", 350, 1);
  const WholeRun run = whole_run(builder.build());
  EXPECT_EQ(run.wall_ns, 350e3);
  EXPECT_EQ(run.part("steps")->ns, 220e3);
  EXPECT_EQ(run.part("other")->ns, 30e3);
}

// Damage may take the first phases; the run has begun with the first step at the latest.
TEST(WholeRun, OfWhichOnlyLaterPhasesAreLeftBeginsWithItsSteps) {
  SessionBuilder builder;
  builder.step(1, 100, 200).step(2, 200, 320);
  add(builder, "checkpoint", 320, 400);
  const WholeRun run = whole_run(builder.build());
  EXPECT_EQ(run.wall_ns, 300e3);
  EXPECT_EQ(run.first_step_ns, 0) << "since the process's start: not known";
  EXPECT_EQ(run.part("checkpoint")->ns, 80e3);
  double sum = 0;
  for (const RunPart& part : run.parts) sum += part.ns;
  EXPECT_EQ(sum, run.wall_ns);
}

TEST(WholeRun, OfASessionWithoutPhasesIsItsStepsAndTheRest) {
  SessionBuilder builder;
  builder.step(1, 0, 100).step(2, 200, 300);
  const WholeRun run = whole_run(builder.build());
  EXPECT_FALSE(run.has_phases);
  EXPECT_EQ(run.wall_ns, 300e3);
  EXPECT_EQ(run.part("other")->ns, 100e3);
  EXPECT_EQ(whole_run({}).wall_ns, 0);
}

// Ten steps of 1 ms, and a checkpoint of 5 ms after every second one.
Case checkpointed() {
  Case c(false);
  for (std::uint64_t step = 2; step <= 10; step += 2)
    add(c.builder, "checkpoint", 20'000 + 6000.0 * static_cast<double>(step),
        25'000 + 6000.0 * static_cast<double>(step), step);
  c.options()["checkpoint_every"] = 2;
  c.analysis.run = {.wall_ns = 40e6,
                    .has_phases = true,
                    .parts = {{"steps", 10e6, 1, {}},
                              {"checkpoint", 25e6, 5, {{"fsync", 24e6, 5, {}}}},
                              {"other", 5e6, 1, {}}},
                    .steps = 10};
  return c;
}

// Of the checkpoints at 2, 4, 6, 8 and 10, those at 8 and, at the end, 10 are left.
TEST(WholeRun, AdviceIsOrderedByTheGainOfTheRun) {
  Case c = checkpointed();
  for (int i = 0; i < 10; ++i) c.builder.span(Kind::range, "observers", 1000 * i, 1000 * i + 900);
  const std::vector<Finding> findings = c.findings();
  ASSERT_GE(findings.size(), 2U);
  EXPECT_EQ(findings[0].key, "slow-checkpoints");
  EXPECT_DOUBLE_EQ(findings[0].run_gain_ns, 25e6 * 3 / 5);
  EXPECT_DOUBLE_EQ(findings[0].gain_ns, 1.5e6);  // more than a step
  EXPECT_EQ(findings[0].flag, "--checkpoint-every 8");
  EXPECT_THAT(findings[0].evidence, HasSubstr("5.00 ms each: 4.80 ms fsync"));
  EXPECT_EQ(findings[1].key, "slow-observers");
  EXPECT_DOUBLE_EQ(findings[1].run_gain_ns, 10 * findings[1].gain_ns);
}

TEST(WholeRun, CheckpointsOfEpochsGainByAFasterDisk) {
  Case c = checkpointed();
  c.options()["checkpoint_every"] = 0;
  EXPECT_DOUBLE_EQ(c.finding("slow-checkpoints")->run_gain_ns, 12e6);
  EXPECT_THAT(c.finding("slow-checkpoints")->advice, HasSubstr("write checkpoints to"));
}

TEST(WholeRun, CheckpointsThatFollowEvaluationsStay) {
  Case c = checkpointed();
  c.options()["eval_every"] = 2;
  for (std::uint64_t step = 2; step <= 10; step += 2)
    add(c.builder, "evaluation", 20'000, 20'100, step);
  // One is due without the other, too.
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "--checkpoint-every 8 --eval-every 8");
  EXPECT_DOUBLE_EQ(c.finding("slow-checkpoints")->run_gain_ns, 15e6);
  c.options()["checkpoint_every"] = 100;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "--eval-every 8");
  EXPECT_DOUBLE_EQ(c.finding("slow-checkpoints")->run_gain_ns, 15e6);
}

TEST(WholeRun, EvaluationsOfEpochsGainByASmallerSplit) {
  Case c = checkpointed();
  c.analysis.run.parts.push_back({"evaluation", 20e6, 5, {}});
  for (std::uint64_t step = 1; step <= 5; ++step)
    add(c.builder, "evaluation", 20'000, 20'100, step);
  c.builder.raw().loader["steps_per_epoch"] = 1;
  c.options()["eval_every"] = 1;
  EXPECT_EQ(c.finding("long-evaluation")->flag, "") << "each epoch ends with one";
  EXPECT_THAT(c.finding("long-evaluation")->advice, HasSubstr("a smaller test split"));
  c.options()["val_split"] = 0.5;
  EXPECT_THAT(c.finding("long-evaluation")->advice, HasSubstr("--val-split"));
}

TEST(WholeRun, NoDiskShortensReadingTheWeights) {
  Case c = checkpointed();
  c.options()["checkpoint_every"] = 0;
  std::vector<RunPart>& parts = c.analysis.run.parts[1].parts;
  parts = {{"gather", 10e6, 5, {}}, {"write", 6e6, 5, {}}, {"fsync", 5e6, 5, {}}};
  EXPECT_THAT(c.finding("slow-checkpoints")->advice, HasSubstr("write checkpoints to"));
  parts[0].ns = 12e6;
  EXPECT_THAT(c.finding("slow-checkpoints")->advice, HasSubstr("write checkpoints to"))
      << "not half of it";
  parts[0].ns = 13e6;
  EXPECT_THAT(c.finding("slow-checkpoints")->advice,
              HasSubstr("most of it is reading the weights and moments and computing"));
  EXPECT_EQ(c.finding("slow-checkpoints")->run_gain_ns, 0);
}

TEST(WholeRun, NamesTheDeletionOfOldCheckpoints) {
  Case c = checkpointed();
  c.options()["checkpoint_every"] = 0;
  std::vector<RunPart>& parts = c.analysis.run.parts[1].parts;
  parts = {{"gather", 3e6, 5, {}}, {"write", 2e6, 5, {}}, {"other", 20e6, 1, {}}};
  EXPECT_THAT(c.finding("slow-checkpoints")->advice, Not(HasSubstr("checksums")));
  parts[2].name = "remove";
  const auto finding = c.finding("slow-checkpoints");
  EXPECT_EQ(finding->flag, "--keep-checkpoints 0");
  EXPECT_THAT(finding->advice, HasSubstr("deleting old checkpoints"));
  EXPECT_DOUBLE_EQ(finding->run_gain_ns, 20e6);
  c.options()["keep_checkpoints"] = 0;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "") << "that of the best one is left";
  EXPECT_GT(c.finding("slow-checkpoints")->run_gain_ns, 0);
  c.options()["checkpoint_every"] = 2;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "") << "20 ms, rarer ones save 15 ms";
  parts[2].ns = 14e6;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "--checkpoint-every 8");
}

TEST(WholeRun, EvaluationsThatWaitForTheLoaderNeedAFasterOne) {
  Case c = checkpointed();
  c.builder.raw().loader["encoding"] = "png";
  c.builder.raw().loader["tier"] = "decoded";
  c.analysis.loader.workers = 1;
  RunPart& part = c.analysis.run.parts[1];
  part = {"evaluation", 25e6, 5, {{"loader wait", 12e6, 5, {}}}};
  EXPECT_THAT(c.finding("long-evaluation")->advice, StartsWith("use a smaller test split"));
  part.parts[0].ns = 24.5e6;
  EXPECT_THAT(c.finding("long-evaluation")->advice,
              AllOf(StartsWith("evaluation waits for the loader: use --workers 2, `warpstep data "
                               "pack SRC OUT --decode` or --tier mapped"),
                    HasSubstr("; or use a smaller test split")));
  c.builder.raw().loader["tier"] = "mapped";
  EXPECT_THAT(c.finding("long-evaluation")->advice,
              HasSubstr("use --workers 2; or use a smaller test split"));
  c.options()["eval_every"] = 5;
  EXPECT_THAT(c.finding("long-evaluation")->advice,
              HasSubstr("--eval-every 20; evaluation waits for the loader: use --workers 2"));
}

TEST(WholeRun, OneCheckpointOfAShortRunIsNoAdvice) {
  Case c = checkpointed();
  const std::vector<std::pair<const char*, const char*>> keys{{"checkpoint", "slow-checkpoints"},
                                                              {"evaluation", "long-evaluation"}};
  c.analysis.run.wall_ns = 60e6;
  for (const auto& [part, key] : keys) {
    c.analysis.run.parts[1] = {part, 25e6, 2, {}};
    EXPECT_FALSE(c.finding(key)) << "a run of a few steps ends with one too";
    c.analysis.run.parts[1].count = 3;
    EXPECT_TRUE(c.finding(key));
  }
  c.analysis.run.parts[1] = {"evaluation", 31e6, 1, {}};
  EXPECT_TRUE(c.finding("long-evaluation")) << "more than half of the run";
  c.analysis.run.parts[1] = {"checkpoint", 25e9, 1, {}};
  c.analysis.run.wall_ns = 60e9;
  EXPECT_TRUE(c.finding("slow-checkpoints")) << "a minute of one does matter";
}

TEST(WholeRun, TwoEvaluationsOfWholeEpochsAreAdvice) {
  const auto found_at = [](std::uint64_t first, std::uint64_t second) {
    Case c(false);
    add(c.builder, "evaluation", 20'000, 30'000, first);
    add(c.builder, "evaluation", 40'000, 50'000, second);
    c.builder.raw().loader["steps_per_epoch"] = 5;
    c.analysis.run = {.wall_ns = 60e6,
                      .has_phases = true,
                      .parts = {{"steps", 10e6, 1, {}}, {"evaluation", 20e6, 2, {}}},
                      .steps = 10};
    return c.finding("long-evaluation");
  };
  EXPECT_FALSE(found_at(5, 8)) << "--steps ended the run";
  const auto finding = found_at(5, 10);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->advice, HasSubstr("--limit-batches"));
}

TEST(WholeRun, EvaluationsGain) {
  Case c = checkpointed();
  c.analysis.run.parts[1].name = "evaluation";
  ASSERT_TRUE(c.finding("long-evaluation"));
  EXPECT_DOUBLE_EQ(c.finding("long-evaluation")->run_gain_ns, 12.5e6);
  c.options()["eval_every"] = 5;
  EXPECT_EQ(c.finding("long-evaluation")->flag, "--eval-every 20");
}

// Each evaluation is followed by a checkpoint. Of those after 2, 4, 6, 8 and 10, 8 and 10 are left.
TEST(WholeRun, RarerEvaluationsAlsoSaveTheirCheckpoints) {
  Case c = checkpointed();
  for (std::uint64_t step = 2; step <= 10; step += 2)
    add(c.builder, "evaluation", 19'000 + 6000.0 * static_cast<double>(step),
        20'000 + 6000.0 * static_cast<double>(step), step);
  c.analysis.run.parts[1].name = "evaluation";
  c.options()["eval_every"] = 2;
  c.options()["checkpoint_every"] = 0;
  EXPECT_DOUBLE_EQ(c.finding("long-evaluation")->run_gain_ns, 25e6 * 3 / 5 + 3 * 5e6);
  c.options()["checkpoint_every"] = 4;  // that after step 4 is due anyway
  EXPECT_DOUBLE_EQ(c.finding("long-evaluation")->run_gain_ns, 25e6 * 3 / 5 + 2 * 5e6);
}

TEST(WholeRun, CheckpointsThatRarerEvaluationsSaveArePromisedOnce) {
  Case c = checkpointed();
  for (std::uint64_t step = 2; step <= 10; step += 2)
    add(c.builder, "evaluation", 19'000 + 6000.0 * static_cast<double>(step),
        20'000 + 6000.0 * static_cast<double>(step), step);
  c.options()["eval_every"] = 2;
  c.options()["checkpoint_every"] = 0;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "--eval-every 8");
  c.analysis.run.parts[2] = {"evaluation", 15e6, 5, {}};
  c.analysis.run.wall_ns = 50e6;
  const auto finding = c.finding("long-evaluation");
  EXPECT_DOUBLE_EQ(finding->run_gain_ns, 15e6 * 3 / 5 + 3 * 5e6);
  EXPECT_EQ(finding->flag, "--eval-every 8");
  EXPECT_THAT(finding->evidence, HasSubstr("; checkpoints after them: 25.0 ms of 50.0 ms"));
  EXPECT_FALSE(c.finding("slow-checkpoints"));
  c.options()["checkpoint_every"] = 2;  // their own option saves them
  EXPECT_TRUE(c.finding("slow-checkpoints"));
}

// 205 steps of `us(step)`, of which `wait` is waiting for data.
template <class Us>
Case with_steps(Us us, double wait = 0) {
  Case c(false);
  c.builder.raw().steps.clear();
  c.builder.raw().windows.clear();
  double now = 0;
  for (std::uint64_t step = 1; step <= 205; ++step) {
    const double length = us(step), waited = wait * std::max(0.0, length - 1000);
    c.builder.step(step, now, now + length, length - waited, waited);
    now += length;
  }
  c.analysis.run = {.wall_ns = 1000 * now, .steps = 205};
  return c;
}

TEST(UnevenRun, NamesAFirstEpochThatWaits) {
  const auto first = [](std::uint64_t step) { return step <= 55 ? 1500.0 : 1000.0; };
  const auto finding = with_steps(first, 1).finding("slow-start");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, HasSubstr("The first 55 steps"));
  EXPECT_THAT(
      finding->evidence,
      HasSubstr("steps 6-55 took 1.50 ms, steps 56-205 took 1.00 ms; of that waits for data"));
  EXPECT_THAT(finding->advice, HasSubstr("pack the set"));
  EXPECT_NEAR(finding->run_gain_ns, 50 * 0.5e6, 1e5);
  const auto without_cause = with_steps(first).finding("slow-start");
  EXPECT_THAT(without_cause->advice, HasSubstr("later steps"));
  EXPECT_EQ(without_cause->run_gain_ns, 0) << "nothing saves it";
  Case busy = with_steps(first);
  busy.builder.raw().stamp["cpu"]["cores"] = 2;
  busy.builder.sample("cpu %", 50'000, 100).sample("process cpu %", 50'000, 100);
  busy.builder.sample("cpu %", 200'000, 50).sample("process cpu %", 200'000, 100);
  EXPECT_THAT(busy.finding("slow-start")->advice, HasSubstr("other programs took the cores"));
  EXPECT_GT(busy.finding("slow-start")->run_gain_ns, 0);
}

TEST(UnevenRun, NamesWhenStepsBecameSlower) {
  const auto later = [](std::uint64_t step) { return step <= 105 ? 1000.0 : 1400.0; };
  Case c = with_steps(later);
  const auto finding = c.finding("slower-later");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("kernels 400 us"));
  EXPECT_THAT(finding->advice, HasSubstr("clocks"));
  EXPECT_NEAR(finding->run_gain_ns, 100 * 0.4e6, 1e5);
  c.part(Category::core_wait) = 0.3e6;
  EXPECT_THAT(c.finding("slower-later")->advice, HasSubstr("wait for a core"));
  c.part(Category::core_wait) = 0;
  c.builder.raw().stamp["cpu"]["cores"] = 2;
  c.builder.sample("cpu %", 105'000, 50).sample("process cpu %", 105'000, 95);
  c.builder.sample("cpu %", 200'000, 95).sample("process cpu %", 200'000, 95);
  EXPECT_THAT(c.finding("slower-later")->evidence, HasSubstr("took 45.0 % more of the CPU then"));
  EXPECT_THAT(c.finding("slower-later")->advice, HasSubstr("stop the programs"));
  c.builder.sample("siblings cpu %", 200'000, 90);  // they are ranks of the same job
  EXPECT_THAT(c.finding("slower-later")->evidence, Not(HasSubstr("other programs")));
}

TEST(UnevenRun, SeesNoChangeInNoiseOrInDrops) {
  for (const auto& us : std::vector<double (*)(std::uint64_t)>{
           [](std::uint64_t step) { return step <= 105 ? 1000.0 : 1100.0; },    // too little
           [](std::uint64_t step) { return step % 10 < 5 ? 1000.0 : 1600.0; },  // all the time
           [](std::uint64_t step) { return step < 180 ? 2000.0 : 1000.0; },     // no start
           [](std::uint64_t step) { return step < 5 ? 9000.0 : 1000.0; }}) {    // warm-up
    Case c = with_steps(us);
    EXPECT_FALSE(c.finding("slow-start"));
    EXPECT_FALSE(c.finding("slower-later"));
  }
}

TEST(UnevenRun, NamesPausesOfTheWholeProgram) {
  const auto pause = [](std::uint64_t step) {
    const bool pauses = step % 40 == 20 && step != 60;
    return pauses || step == 61 ? 21'000.0 : 1000.0;
  };
  const auto finding = with_steps(pause).finding("pauses");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("5 of 200 steps took 3 times the median or longer"));
  EXPECT_NEAR(finding->run_gain_ns, 100e6, 1e6);
  EXPECT_FALSE(with_steps(pause, 1).finding("pauses")) << "these waited for data";
  Case waits = with_steps(pause);
  waits.part(Category::core_wait) = 0.5e6;  // of 1 ms
  EXPECT_FALSE(waits.finding("pauses"));
}

// A busy machine delays every step a little; that does not explain the steps that stood still.
TEST(UnevenRun, NamesPausesWhereAllStepsWaitForACore) {
  const auto recorded = [](double usual_us, double slow_us) {
    const auto length = [](std::uint64_t step) {
      return step == 20 || step == 61 || step == 90 ? 5000.0 : 1000.0;
    };
    Case c = with_steps(length);
    double now = 0;
    for (std::uint64_t step = 1; step <= 205; now += length(step++)) {
      const double wait = length(step) > 1000 ? slow_us : usual_us;
      c.builder.span(Kind::counter, "core wait ns", now, now, 0,
                     static_cast<std::uint64_t>(1000 * wait));
    }
    c.builder.window(1, 205, 0, now).span(Kind::call, "c", 0, now);
    c.part(Category::core_wait) = 1000 * usual_us;
    return c;
  };
  EXPECT_TRUE(recorded(200, 200).finding("pauses"));
  EXPECT_FALSE(recorded(200, 4200).finding("pauses"));
}

TEST(UnevenRun, DoesNotCallLoggingOrOtherProgramsPauses) {
  const auto pause = [](std::uint64_t step) {
    return step == 20 || step == 61 || step == 90 ? 21'000.0 : 1000.0;
  };
  Case logs = with_steps(pause);
  EXPECT_THAT(logs.finding("pauses")->advice, HasSubstr("SIGSTOP"));
  for (Step& step : logs.builder.raw().steps)
    if (step.end_ns - step.begin_ns > 2'000'000) step.kernels_ns -= step.cpu_ns = 15'000'000;
  EXPECT_THAT(logs.finding("pauses")->advice, HasSubstr("--log-every"));
  Case busy = with_steps(pause);
  busy.builder.raw().stamp["cpu"]["cores"] = 2;
  double last = 0;
  const std::uint64_t start = busy.builder.raw().steps.front().begin_ns;
  for (const Step& step : busy.builder.raw().steps) {
    const double end = static_cast<double>(step.end_ns - start) / 1000;
    const bool slow = end - last > 2000;
    busy.builder.sample("cpu %", end, slow ? 100 : 50).sample("process cpu %", end, 100);
    last = end;
  }
  EXPECT_THAT(busy.finding("pauses")->advice, HasSubstr("stop the programs"));
  Case always = with_steps(pause);  // they run in the other steps, too
  always.analysis.contention.affinity_cores = 2;
  always.analysis.contention.others_share = 0.5;
  EXPECT_THAT(always.finding("pauses")->text, HasSubstr("while other programs ran"));
  EXPECT_THAT(always.finding("pauses")->advice, ::testing::StartsWith("run where cores are free"));
}

TEST(UnevenRun, SeesStepsThatBecomeSlowerAllTheTime) {
  const auto rises = [](double share) {
    return with_steps([share](std::uint64_t step) {
      return std::round(1000 * (1 + share * static_cast<double>(step) / 200)) +
             (step % 3 == 0 ? 60 : 0);
    });
  };
  Case c = rises(0.3);
  const auto finding = c.finding("slower-later");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text, "Steps become steadily slower.");
  EXPECT_THAT(finding->evidence, HasSubstr("rising steadily"));
  EXPECT_NEAR(finding->run_gain_ns, 195 * 0.1125e6, 1e6);  // half of what the quarters differ by
  EXPECT_FALSE(rises(0.12).finding("slower-later"));
  EXPECT_FALSE(rises(-0.3).finding("slower-later"));
  Case jump = with_steps([](std::uint64_t step) { return step < 100 ? 1000.0 : 1400.0; });
  EXPECT_EQ(jump.finding("slower-later")->text, "Steps became slower during the run.");
}

TEST(UnevenRun, NamesStepsThatAreSlowAtRegularIntervals) {
  const auto slow = [](std::uint64_t step) { return step % 40 == 20 ? 21'000.0 : 1000.0; };
  Case c = with_steps(slow);
  EXPECT_FALSE(c.finding("pauses"));
  const auto finding = c.finding("regular-slow-steps");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text, "One step in 40 takes several times as long as the others.");
  EXPECT_THAT(finding->evidence, HasSubstr("they are steps 20, 60, 100 and so on"));
  EXPECT_THAT(finding->advice, HasSubstr("every 40 steps"));
  EXPECT_NEAR(finding->run_gain_ns, 100e6, 1e6);
}

// The optimiser takes several times as long as a step's own work.
TEST(UnevenRun, DoesNotCallUpdatesPauses) {
  const auto updates = [](std::uint64_t step) {
    return step == 50 || step == 111 || step == 170 ? 61'000.0 : step % 20 == 0 ? 21'000.0 : 1000.0;
  };
  Case c = with_steps([&](std::uint64_t step) { return step % 20 == 0 ? updates(step) : 1000.0; });
  EXPECT_TRUE(c.finding("regular-slow-steps"));
  c.options()["accumulate"] = 20;
  EXPECT_FALSE(c.finding("regular-slow-steps"));
  EXPECT_FALSE(c.finding("pauses"));
  Case pauses = with_steps(updates);
  pauses.options()["accumulate"] = 20;
  ASSERT_TRUE(pauses.finding("pauses"));
  EXPECT_THAT(pauses.finding("pauses")->evidence, HasSubstr("3 of 200 steps"));
}

TEST(WholeRun, NamesWhatTakesLongBeforeTheFirstStep) {
  Case c = checkpointed();
  c.analysis.run.wall_ns = 10e9;
  c.analysis.run.parts.push_back({.name = "data indexing", .ns = 3e9, .count = 1});
  const auto finding = c.finding("slow-indexing");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("3.00 s of 10.0 s"));
  EXPECT_THAT(finding->advice, HasSubstr("warpstep data pack"));
  EXPECT_DOUBLE_EQ(finding->run_gain_ns, 3e9);
  c.analysis.run.wall_ns = 20e9;
  EXPECT_FALSE(c.finding("slow-indexing")) << "15 % of the run";
  c.analysis.run.parts.back().name = "statistics";
  c.analysis.run.wall_ns = 10e9;
  EXPECT_THAT(c.finding("slow-measuring")->advice, HasSubstr("--mean and --std"));
  c.builder.raw().loader["encoding"] = "packed jpeg";
  c.analysis.run.parts.back().name = "data indexing";
  EXPECT_THAT(c.finding("slow-indexing")->advice, HasSubstr("faster disk"));
  c.analysis.run.parts.back().name = "program";
  c.analysis.run.parts.back().parts = {{.name = "plans", .ns = 2.9e9, .count = 1}};
  EXPECT_THAT(c.finding("slow-start-up")->text, HasSubstr("Preparing the step"));
  EXPECT_THAT(c.finding("slow-start-up")->evidence, HasSubstr(": 2.90 s plans"));
  EXPECT_EQ(c.finding("slow-start-up")->run_gain_ns, 0) << "not known";
  c.analysis.run.wall_ns = 3.5e9;
  c.analysis.run.parts.back().ns = 0.9e9;
  EXPECT_FALSE(c.finding("slow-start-up")) << "less than a second";
}

// Waits in the windows of the first epoch say nothing about the later ones.
TEST(UnevenRun, AdviceAboutWaitsCountsTheStepsThatWaited) {
  Case c = with_steps([](std::uint64_t step) { return step <= 41 ? 1500.0 : 1000.0; }, 1);
  c.analysis.breakdown.step_ns = 1.5e6;
  c.analysis.stall.is_stalled = true;
  c.analysis.stall.wait_ns = 0.5e6;
  c.analysis.stall.step_ns = 1.5e6;
  c.analysis.stall.workers_needed = c.analysis.stall.best_workers = 2;
  c.analysis.loader.workers = 1;
  c.analysis.loader.work_ns = 1.4e6;
  c.analysis.loader.step_ns = 1e6;
  c.analysis.loader.wait_ns = 0.5e6;
  const auto finding = c.finding("data-wait");
  ASSERT_TRUE(finding);
  ASSERT_GT(finding->gain_ns, 0);
  EXPECT_NEAR(finding->run_gain_ns / finding->gain_ns, 41, 1);
  for (Step& step : c.builder.raw().steps) {
    const bool is_first = &step == &c.builder.raw().steps.front();
    if (!is_first) step.begin_ns += 1'000'000'000;
    step.end_ns += 1'000'000'000;
    if (is_first) step.data_ns += 1'000'000'000;  // waiting for the first batch is start-up
  }
  const auto later = c.finding("data-wait");
  EXPECT_NEAR(later->run_gain_ns / later->gain_ns, 41, 1);
}

}  // namespace
}  // namespace warpstep::profiler
