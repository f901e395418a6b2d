#include "profiler/export/quantity.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/analysis/tables.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_analysis.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

TEST(Verdict, NamesTheLargestParts) {
  const testing::Example example = testing::cpu_example();
  EXPECT_EQ(verdict(example.session, example.analysis),
            "A step takes 42.4 ms: 68.3 % kernels, 29.3 % loader wait, 2.1 % CPU; 3,022 "
            "samples/s in steps.");
  EXPECT_EQ(gain_text(example.session, example.analysis, example.analysis.findings.front()),
            "12.3 ms per step (1.41x), 4.81 s per epoch");
  testing::Example once = testing::cpu_example();  // of which one epoch alone waits
  once.analysis.findings.front().run_gain_ns = 100 * once.analysis.findings.front().gain_ns;
  once.analysis.run.steps = 1000;
  EXPECT_EQ(gain_text(once.session, once.analysis, once.analysis.findings.front()),
            "12.3 ms per step (1.41x)");
  EXPECT_EQ(verdict({}, {}), "No step was recorded.");
  testing::Example text = testing::cpu_example();
  text.session.loader["encoding"] = "tokens";
  EXPECT_TRUE(verdict(text.session, text.analysis).ends_with("3,022 tokens/s in steps."));
  const std::string page = html_report(text.session, text.analysis);
  EXPECT_THAT(page, ::testing::HasSubstr("Tokens per second"));
  EXPECT_THAT(page, ::testing::Not(::testing::HasSubstr("Samples per second")));
  const Table steps = steps_table(text.session, text.analysis);
  EXPECT_EQ(std::ranges::count(steps.columns, "tokens", &Column::key), 1);
  Finding range = example.analysis.findings.front();
  range.gain_least_ns = 1e6;
  range.gain_most_ns = 2.5e6;
  EXPECT_EQ(gain_text(example.session, example.analysis, range), "1.00 ms to 2.50 ms per step");
  text.analysis.run.steps = 100;
  range.gain_ns = 1.75e6;
  range.run_gain_ns = 100 * 1.75e6 + 4e6;
  EXPECT_EQ(gain_text(example.session, text.analysis, range), "1.00 ms to 2.50 ms per step");
  range.run_gain_ns = 100 * 1.75e6 + 810e6;  // and of evaluations
  EXPECT_EQ(gain_text(example.session, text.analysis, range),
            "1.00 ms to 2.50 ms per step, and 810 ms between steps");
  range.gain_least_ns = 0;
  EXPECT_EQ(gain_text(example.session, text.analysis, range),
            "at most 2.50 ms per step, and 810 ms between steps");
  Finding outside = example.analysis.findings.front();
  outside.outside_steps = true;
  outside.flag = "--eval-every 4";
  outside.run_gain_ns = 36.4e9;
  text.analysis.findings = {outside};
  EXPECT_THAT(html_report(text.session, text.analysis), ::testing::HasSubstr("of the run: --"));
  text.analysis.run = {.wall_ns = 72.8e9, .has_phases = true};
  EXPECT_EQ(gain_text(example.session, text.analysis, outside), "36.4 s, 50.0 % of this run");
  outside.outside_steps = false;  // of steps too, but none of that is saved
  outside.gain_ns = 0;
  EXPECT_EQ(gain_text(example.session, text.analysis, outside), "36.4 s, 50.0 % of this run");
  outside.run_gain_ns = 0;
  EXPECT_EQ(gain_text(example.session, text.analysis, outside), "");
}

TEST(OutsideSteps, IsWhatLiesBetweenThem) {
  testing::SessionBuilder builder;
  builder.step(1, 0, 1000, 900).step(2, 1010, 2010, 900);
  EXPECT_EQ(outside_steps(builder.build()), "");  // 10 of 2010 us
  builder.step(3, 4010, 5000, 900);
  EXPECT_EQ(
      outside_steps(builder.build()),
      "Outside of steps: 2.01 ms of 5.00 ms (40.2 %): evaluations, checkpoints and the like.");
  builder.span(Kind::range, "evaluation", 2010, 4000);
  EXPECT_EQ(outside_steps(builder.build()),
            "Outside of steps: 2.01 ms of 5.00 ms (40.2 %): evaluation.");
  builder.span(Kind::range, "checkpoint", 4000, 4010);
  EXPECT_EQ(outside_steps(builder.build()),
            "Outside of steps: 2.01 ms of 5.00 ms (40.2 %): evaluation, checkpoints.");
  EXPECT_EQ(outside_steps({}), "");
}

TEST(Sentence, HasACapitalAndAFullStop) {
  EXPECT_EQ(sentence("use --workers 6"), "Use --workers 6.");
  EXPECT_EQ(sentence("conv1/conv is slow"), "conv1/conv is slow.");
  EXPECT_EQ(sentence("Done!"), "Done!");
  EXPECT_EQ(sentence(""), "");
}

TEST(MachineFacts, HaveThePriorityOfTheProcess) {
  Session session = testing::cpu_example().session;
  const auto scheduling = [&] {
    for (const auto& [what, text] : machine_facts(session))
      if (what == "scheduling") return text;
    return std::string("none");
  };
  EXPECT_EQ(scheduling(), "none");
  session.stamp["scheduling"] = {{"nice", 10}, {"policy", "batch"}};
  EXPECT_EQ(scheduling(), "nice 10, policy batch");
}

TEST(Trust, SaysWhatWasLost) {
  Analysis analysis;
  EXPECT_EQ(trust_line(analysis), "Recording cost 0.0 % of a step (0 ns); nothing was lost.");
  analysis.trust.losses = {.entries = 1200, .cut_bytes = 7};
  analysis.trust.clock_error_ns = 1500;
  EXPECT_EQ(trust_line(analysis),
            "Recording cost 0.0 % of a step (0 ns); lost: 1,200 entries of full rings, 7 bytes at "
            "the end of the file; clocks agree within 1.50 us.");
}

TEST(Trust, SaysWhatRecordingCost) {
  Analysis analysis;
  Trust& trust = analysis.trust;
  trust = {.overhead_ns = 21e3, .overhead_share = 0.001};
  EXPECT_EQ(cost_text(trust), "0.1 % of a step (21.0 us)");
  trust.cost = Trust::Cost::unknown;
  EXPECT_EQ(cost_text(trust), "not known for device records; of spans 0.1 % of a step (21.0 us)");
  EXPECT_EQ(trust_line(analysis),
            "The cost of recording is not known for device records; of spans 0.1 % of a step (21.0 "
            "us); nothing was lost.");
  trust.cost = Trust::Cost::measured;
  trust.overhead_error_ns = 19e3, trust.overhead_error_share = 0.0009;
  EXPECT_EQ(cost_text(trust), "0.1 % of a step (21.0 us), against steps outside of windows");
  trust.overhead_error_ns = 63e3, trust.overhead_error_share = 0.003;
  EXPECT_EQ(cost_text(trust),
            "at most 0.4 % of a step (84.0 us), against steps outside of windows");
}

TEST(Epoch, IsToldOrCounted) {
  Session session;
  EXPECT_EQ(steps_per_epoch(session), 0);
  for (std::uint64_t step = 1; step <= 7; ++step)
    session.steps.push_back({.step = step, .epoch = step <= 5 ? 1U : 2U});
  EXPECT_EQ(steps_per_epoch(session), 5);
  session.loader = {{"steps_per_epoch", 391}};
  EXPECT_EQ(steps_per_epoch(session), 391);
}

}  // namespace
}  // namespace warpstep::profiler
