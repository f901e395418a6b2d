#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "profiler/analysis/compare.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/testing_compare.h"
#include "profiler/analysis/work.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using testing::layer;
using ::testing::Not;
using testing::planned;
using testing::Planned;
using testing::stamped;

std::vector<std::string> significant(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const Change& change : comparison.changes)
    if (change.is_significant) names.push_back(change.what);
  return names;
}

double waterfall_sum(const Comparison& comparison) {
  double sum = 0;
  for (const auto& [name, ns] : comparison.waterfall) sum += ns;
  return sum;
}

// Of 100 pairs of equal runs whose speed, as that of a whole run, spreads by `sd`.
int flagged(double sd, std::uint32_t seed) {
  int count = 0;
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    const auto run = [&](std::uint32_t index) {
      return planned({.calls = 5, .steps = 40, .speed = 1 + sd * testing::normal(index, 0)}, index);
    };
    if (!significant(compare(run(seed + 2 * trial), run(seed + 2 * trial + 1))).empty()) ++count;
  }
  return count;
}

TEST(Compare, EqualRunsSeldomDiffer) {
  EXPECT_LE(flagged(0, 0), 5);
  EXPECT_LE(flagged(0.0091, 1000), 5);
}

// The third call of ten takes 3 % of the step longer: more than rows must, less than steps must.
TEST(Compare, FindsThePlantedLayerAndOnlyThat) {
  int found = 0;
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    const Comparison result =
        compare(planned({}, 5000 + 2 * trial), planned({.slower = 1.3}, 5001 + 2 * trial));
    if (significant(result) == std::vector<std::string>{layer(2)}) ++found;
  }
  EXPECT_GE(found, 95);
}

TEST(Compare, ACallStandsOutByItsShareOfTheStep) {
  const auto run = [](double slower, std::uint32_t seed) {
    return planned({.calls = 10, .small_us = 10, .slower = slower}, seed);
  };
  // 100 % more of a call of 10 us in a step of 4.5 ms.
  EXPECT_THAT(significant(compare(run(1, 1), run(2, 2))), IsEmpty());
}

std::vector<ComparedRun> as_runs(const std::vector<Session>& sessions) {
  std::vector<ComparedRun> runs;
  for (const Session& session : sessions) runs.push_back({&session, score_of(session)});
  return runs;
}

TEST(Compare, SeveralRunsShowWhatOneDoesNot) {
  std::vector<Session> before, after;
  for (const double off : {-0.009, 0.002, 0.007}) {
    const auto seed = static_cast<std::uint32_t>(before.size());
    before.push_back(planned({.speed = 1 + off}, seed));
    after.push_back(planned({.speed = 1.03 - off}, 10 + seed));
  }
  const Comparison one = compare(before[0], after[2]);
  EXPECT_FALSE(one.changes[0].is_significant);
  EXPECT_NEAR(one.by_chance, 0.033, 0.003);
  EXPECT_THAT(one.verdict, HasSubstr("With one run per side, a change below 3."));
  EXPECT_THAT(one.verdict, HasSubstr("No significant difference: a step takes"));
  const Comparison three = compare(as_runs(before), as_runs(after));
  EXPECT_TRUE(three.changes[0].is_significant);
  EXPECT_LT(three.smallest_change, 0.022);
  EXPECT_EQ(three.runs_after, 3U);
  EXPECT_THAT(three.verdict, HasSubstr("3 runs before and 3 after show changes of"));
  EXPECT_THAT(three.verdict, HasSubstr("longer"));
}

TEST(Compare, RunsOfASideThatDifferAreWarnedOf) {
  std::vector<Session> side{planned({}, 1), planned({}, 2)};
  side[1].stamp["options"]["precision"] = "bf16";
  EXPECT_THAT(compare(as_runs(side), as_runs({side[0]})).warnings,
              ElementsAre(HasSubstr("the runs before differ among themselves: precision is fp32 "
                                    "in the first and bf16 in run 2")));
}

TEST(Compare, AnotherProgramIsNoChangeOfThisOne) {
  const auto run = [](double speed, double cpu, std::uint32_t seed) {
    Session session = planned({.speed = speed}, seed);
    for (const auto& [name, value] : {std::pair{"cpu %", cpu}, std::pair{"process cpu %", 100.0}}) {
      session.names.push_back({name, Kind::counter});
      session.samples.push_back({.at_ns = session.steps[30].begin_ns,
                                 .name = static_cast<std::uint32_t>(session.names.size() - 1),
                                 .value = value});
    }
    return session;
  };
  const Comparison quiet = compare(run(1, 50, 1), run(1.23, 50, 2));  // one of two cores
  EXPECT_TRUE(quiet.changes[0].is_significant);
  EXPECT_THAT(quiet.warnings, IsEmpty());
  const Comparison busy = compare(run(1, 50, 1), run(1.23, 95, 2));  // 0.9 cores by others
  EXPECT_THAT(significant(busy), IsEmpty());
  EXPECT_THAT(busy.verdict,
              HasSubstr("but other work on the machine or lower clocks may account for"));
  EXPECT_THAT(busy.warnings, ElementsAre(HasSubstr("0.00 cores before and 0.90 after")));
  Session virtual_machine = run(1.23, 95, 2);
  virtual_machine.names.push_back({"stolen cpu %", Kind::counter});
  virtual_machine.samples.push_back(
      {.at_ns = virtual_machine.steps[30].begin_ns,
       .name = static_cast<std::uint32_t>(virtual_machine.names.size() - 1),
       .value = 90});
  EXPECT_THAT(compare(run(1, 50, 1), virtual_machine).warnings,
              ElementsAre(HasSubstr("0.00 cores before and 0.00 after, and the hypervisor gave "
                                    "0.00 before and 0.90 after")));
  // Before the change it would hide a longer step, not make one.
  EXPECT_TRUE(compare(run(1, 95, 1), run(1.23, 50, 2)).changes[0].is_significant);
}

TEST(Compare, WhatTheFastestStepsDoNotShowMayBeOtherWorkOnTheMachine) {
  const auto run = [](double speed, double disturbed, std::uint32_t seed) {
    return planned({.speed = speed, .disturbed = disturbed, .stretched = 1.4}, seed);
  };
  const Comparison busy = compare(run(1, 0, 1), run(1, 0.8, 2));
  EXPECT_THAT(significant(busy), IsEmpty());
  EXPECT_THAT(busy.verdict, HasSubstr("but other work on the machine"));
  const Change& step = busy.changes[0];  // what the interval may hide is no change that shows
  EXPECT_GE(busy.smallest_change * step.before_ns, (step.high - step.low) / 2);
  EXPECT_GT(busy.smallest_change, busy.by_chance);
  EXPECT_THAT(significant(compare(run(1, 0.8, 1), run(1, 0, 2))), IsEmpty());
  // All steps are slower, and most of them disturbed on both sides or after only.
  EXPECT_TRUE(compare(run(1, 0.8, 1), run(1.3, 0.8, 2)).changes[0].is_significant);
  EXPECT_TRUE(compare(run(1, 0, 1), run(1.3, 0.8, 2)).changes[0].is_significant);
  // Several runs a side show themselves what such work does to them.
  const std::vector<Session> before{run(1, 0.8, 1), run(1, 0.8, 2), run(1, 0.8, 3)},
      after{run(1, 0, 4), run(1, 0, 5), run(1, 0, 6)};
  EXPECT_TRUE(compare(as_runs(before), as_runs(after)).changes[0].is_significant);
}

TEST(Compare, StepsThatWaitForDataInOneRunOnlyAreToldApart) {
  EXPECT_THAT(significant(compare(planned({}, 1), planned({.wait_us = 2000}, 2))),
              ElementsAre("step", "data wait"));
}

TEST(Compare, SaysWhatTheRunsLearnedAndWhenTheyDoOtherWork) {
  Session before = planned({}, 1), after = planned({}, 2);
  after.stamp["options"]["precision"] = "bf16";
  after.stamp["options"]["lr"] = 0.1;
  const Comparison found = compare({{&before, {.validation_accuracy = 0.538}}},
                                   {{&after, {.validation_accuracy = 0.776}}});
  ASSERT_EQ(found.scores.size(), 1U);
  EXPECT_EQ(found.scores[0].what, "validation accuracy");
  const Table scores = scores_table(found);
  EXPECT_EQ(std::get<std::string>(scores.rows[0][1]), "53.8 %");
  EXPECT_EQ(std::get<std::string>(scores.rows[0][2]), "77.6 %");
  EXPECT_THAT(found.verdict,
              HasSubstr("The runs do not do the same work: precision: fp32 before, bf16 after. "));
  EXPECT_THAT(found.verdict, Not(HasSubstr("lr")));
}

TEST(Compare, TellsTheChangeInNumbers) {
  const Comparison result = compare(planned({}, 1), planned({.slower = 1.5, .wait_us = 100}, 2));
  ASSERT_GE(result.changes.size(), 16U);
  const Change& step = result.changes[0];
  EXPECT_EQ(step.what, "step");
  EXPECT_TRUE(step.is_significant);
  EXPECT_NEAR(step.after_ns - step.before_ns, 350e3, 20e3);
  EXPECT_LT(step.low, step.after_ns - step.before_ns);
  EXPECT_GT(step.high, step.after_ns - step.before_ns);
  EXPECT_EQ(result.changes[1].what, "kernels");  // parts follow, the largest change first
  EXPECT_EQ(result.changes[2].what, "data wait");
  EXPECT_NEAR(result.changes[2].after_ns, 100e3, 1);
  const Change& call = result.changes[6];
  EXPECT_EQ(call.what, layer(2));
  EXPECT_EQ(call.phase, "forward");
  EXPECT_NEAR(call.after_ns - call.before_ns, 250e3, 10e3);
  EXPECT_LT(call.p, 1e-3);
  EXPECT_EQ(result.waterfall[0].first, layer(2) + " forward");
  EXPECT_EQ(result.waterfall.back().first, "rest");
  EXPECT_LT(std::abs(result.waterfall.back().second), 20e3);
  EXPECT_NEAR(waterfall_sum(result), step.after_ns - step.before_ns, 1e-3);
  EXPECT_THAT(result.verdict, HasSubstr("longer"));
  EXPECT_THAT(result.verdict, HasSubstr("layer2/conv forward, +2"));
  EXPECT_TRUE(result.warnings.empty());
}

TEST(Compare, SaysWhenNothingStandsOut) {
  const Comparison result = compare(planned({}, 1), planned({}, 2));
  EXPECT_THAT(result.verdict, HasSubstr("No significant difference"));
  ASSERT_EQ(result.waterfall.size(), 1U);
  EXPECT_NEAR(waterfall_sum(result), result.changes[0].after_ns - result.changes[0].before_ns,
              1e-3);
}

TEST(Compare, FindsDeviceWorkThatRunsAfterTheStepThatLaunchedIt) {
  const Planned plan{.calls = 4, .steps = 20, .gpu = true};
  Planned slow = plan;
  slow.slower = 1.2;
  Session after = planned(slow, 2);
  for (Activity& activity : after.activities)  // all of it runs about a step late
    if (activity.what == What::kernel) activity.start_ns += 2'000'000, activity.end_ns += 2'000'000;
  const Comparison result = compare(planned(plan, 1), after);
  const auto call = std::find_if(result.changes.begin(), result.changes.end(),
                                 [](const Change& c) { return c.what == layer(2); });
  ASSERT_NE(call, result.changes.end());
  EXPECT_TRUE(call->is_significant);
  EXPECT_NEAR(call->after_ns - call->before_ns, 100e3, 10e3);
}

TEST(Compare, DeviceWorkIsOfTheStepInWhichItRuns) {
  Session session = planned({.calls = 4, .steps = 80, .gpu = true}, 1);
  for (Activity& activity : session.activities) {  // every second step launches the next one, too
    if (activity.what != What::api) continue;
    const std::size_t step = step_at(session, activity.start_ns), first = step - step % 2;
    activity.start_ns -= session.steps[step].begin_ns - session.steps[first].begin_ns;
    activity.end_ns = activity.start_ns + 1000;
  }
  const Comparison halves = compare_halves(session);
  EXPECT_THAT(significant(halves), IsEmpty());
  const Work work = find_work(session);
  ASSERT_EQ(work.calls.size(), 4U);
  for (const CallRow& call : work.calls) {
    const auto change = std::ranges::find(halves.changes, call.title, &Change::what);
    ASSERT_NE(change, halves.changes.end());
    const double mean_ns = static_cast<double>(call.total_ns) / static_cast<double>(work.steps);
    EXPECT_NEAR(change->before_ns, mean_ns, 0.01 * mean_ns);
    EXPECT_NEAR(change->after_ns, mean_ns, 0.01 * mean_ns);
  }
}

TEST(Compare, ListsEachCallOfADevice) {
  const Session before = planned({.calls = 4, .steps = 20, .gpu = true}, 1);
  const Comparison result = compare(before, before);
  EXPECT_EQ(std::count_if(result.changes.begin(), result.changes.end(),
                          [](const Change& c) { return c.phase == "forward"; }),
            4);
}

TEST(Compare, ACallThatIsGoneIsAChange) {
  Session after = planned({.calls = 9}, 2);
  const Comparison result = compare(planned({}, 1), after);
  EXPECT_THAT(significant(result), Contains(layer(9)));
  const auto gone = std::find_if(result.changes.begin(), result.changes.end(),
                                 [](const Change& c) { return c.what == layer(9); });
  EXPECT_EQ(gone->after_ns, 0);
}

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Compare, RefusesWhatIsNotTheSameUnlessForced) {
  const Session before = planned({}, 1);
  Session after = planned({}, 2);
  after.stamp = stamped("resnet18", 128);
  EXPECT_THAT(refusal([&] { compare(before, after); }),
              HasSubstr("model: cnn before, resnet18 after"));
  after.stamp = stamped("cnn", 256);
  EXPECT_THAT(refusal([&] { compare(before, after); }), HasSubstr("batch: 128 before, 256 after"));
  after.stamp = stamped("cnn", 128);
  after.stamp["cpu"]["model"] = "another CPU";
  EXPECT_THAT(refusal([&] { compare(before, after); }),
              HasSubstr("device: one CPU before, another CPU after"));
  EXPECT_THAT(refusal([&] { compare(before, planned({.gpu = true}, 2)); }),
              HasSubstr("device: one CPU before, NVIDIA H200 after"));
  const Comparison forced = compare(before, after, {.force = true});
  ASSERT_EQ(forced.footing.by_machine.size(), 1U) << "the CPU is named once";
  EXPECT_EQ(forced.footing.by_machine[0].text(), "device: one CPU before, another CPU after");
}

TEST(Compare, WarnsOfWhatElseDiffers) {
  Session before = planned({}, 1), after = planned({}, 2);
  after.stamp["options"]["precision"] = "bf16";
  after.stamp["options"]["out"] = "elsewhere";
  after.stamp["gpus"] = Json::array({{{"driver", "580"}}});
  after.losses.entries = 3;
  const Comparison found = compare(before, after);
  EXPECT_THAT(found.warnings,
              ElementsAre(HasSubstr("gpus: not recorded before"), HasSubstr("lost 3 records")));
  ASSERT_EQ(found.footing.by_intent.size(), 1U);
  EXPECT_EQ(found.footing.by_intent[0].text(), "precision: fp32 before, bf16 after");
  EXPECT_TRUE(found.footing.is_equal()) << "nothing differs by machine";
  EXPECT_THAT(found.verdict, Not(HasSubstr("footing")));
}

TEST(Compare, WarnsWhenOneRunOnlyHadItsClocksLocked) {
  Session before = planned({}, 1), after = planned({}, 2);
  after.stamp["options"]["profile_counters"] = true;
  after.stamp["profiler"]["counters"] = "DRAM %";
  const auto warned = ElementsAre(HasSubstr("locked by PM sampling in the run after only"));
  EXPECT_THAT(compare(before, after).warnings, warned);
  before.stamp["profiler"]["counters"] = "SM active %, DRAM %";
  EXPECT_THAT(compare(before, after).warnings, IsEmpty());
}

TEST(Compare, NeedsEnoughSteps) {
  EXPECT_THAT(refusal([] { compare(planned({.steps = 7}, 1), planned({.steps = 60}, 2)); }),
              HasSubstr("the run before has 6 steps"));
  EXPECT_THAT(compare(planned({.steps = 12}, 1), planned({}, 2)).warnings,
              Contains(HasSubstr("the run before has only 11 steps")));
}

TEST(Compare, WithoutWindowsComparesTheParts) {
  Session before = planned({}, 1), after = planned({.slower = 1.5}, 2);
  before.windows.clear();
  const Comparison result = compare(before, after);
  EXPECT_EQ(result.changes.size(), 6U);
  EXPECT_TRUE(result.changes[0].is_significant);
  EXPECT_THAT(result.warnings, Contains(HasSubstr("without calls")));
}

// Calls 0 to 4 are in block.0, the others in block.1.
Session with_blocks(double speed, std::uint32_t seed) {
  Session session = planned({}, seed);
  Json& calls = session.program["calls"];
  for (std::size_t c = 0; c < calls.size(); ++c)
    calls[c]["layer"] = "block." + std::to_string(c / 5) + ".conv" + std::to_string(c);
  for (Span& span : session.spans)  // longer into the call after it, which its own span hides
    if (session.kind(span) == Kind::call && span.arg < 5)
      span.end_ns += static_cast<std::uint64_t>((speed - 1) *
                                                static_cast<double>(span.end_ns - span.begin_ns));
  return session;
}

TEST(Compare, SumsTheCallsOfAModule) {
  const Session before = with_blocks(1, 1), after = with_blocks(1.1, 2);
  const auto modules = [&](std::size_t depth) {
    std::vector<Change> found;
    for (const Change& change : compare(before, after, {.depth = depth}).changes)
      if (change.phase == "module") found.push_back(change);
    return found;
  };
  const std::vector<Change> blocks = modules(2);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].what, "block.0") << "the largest change first";
  EXPECT_NEAR(blocks[0].before_ns, 2.5e6, 2.5e4);
  EXPECT_NEAR(blocks[0].delta(), 2.5e5, 2.5e4);
  EXPECT_TRUE(blocks[0].is_significant);
  EXPECT_FALSE(blocks[1].is_significant);
  EXPECT_EQ(modules(1).size(), 1U);
  EXPECT_TRUE(modules(3).empty()) << "a module of one call is that call";
  EXPECT_TRUE(modules(0).empty());
}

TEST(Compare, WithAccumulateASlowerUpdateIsFound) {
  const auto run = [](double update_us, std::uint32_t seed, int accumulate = 4) {
    return planned({.calls = 4, .steps = 83, .accumulate = accumulate, .update_us = update_us},
                   seed);
  };
  const Comparison found = compare(run(400, 1), run(800, 2));
  EXPECT_THAT(significant(found), IsSupersetOf({"step", "update_all"}));
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("has only 18 whole updates of 4 steps"),
                                          HasSubstr("has only 18 whole updates of 4 steps")));
  const auto update = std::ranges::find(found.changes, "update_all", &Change::what);
  ASSERT_NE(update, found.changes.end());
  EXPECT_NEAR(update->before_ns, 100e3, 2e3) << "per step";
  EXPECT_NEAR(update->after_ns, 200e3, 4e3);
  EXPECT_THAT(significant(compare(run(400, 1), run(400, 2))), IsEmpty());
  EXPECT_THAT(refusal([&] { compare(run(400, 1, 16), run(400, 2, 16)); }),
              HasSubstr("has 4 whole updates of 16 steps to compare"));
}

TEST(Compare, WarnsOfWhatOnlyFewStepsHave) {
  const auto run = [](double wait_us, std::uint32_t seed) {
    return planned({.calls = 4, .steps = 80, .wait_us = wait_us, .wait_every = 16}, seed);
  };
  const Comparison found = compare(run(0, 1), run(2000, 2));
  EXPECT_THAT(significant(found), IsEmpty());
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("a few long steps add ")));
  EXPECT_THAT(compare(run(2000, 1), run(2000, 2)).warnings, IsEmpty());
}

TEST(Compare, HalvesOfOneRunShowTheNoiseFloor) {
  EXPECT_TRUE(significant(compare_halves(planned({.steps = 80, .windows = 4}, 3))).empty());
  // Every second step slower is found.
  Session session = planned({.steps = 80}, 3);
  for (std::size_t i = 0; i < session.steps.size(); i += 2) {
    session.steps[i].other_ns += 500'000;
    session.steps[i].begin_ns -= 500'000;
  }
  EXPECT_THAT(significant(compare_halves(session)), Contains("step"));
  session.stamp["options"]["accumulate"] = 2;  // one of the two updates
  EXPECT_TRUE(significant(compare_halves(session)).empty());
}

TEST(Compare, HalvesShareTheFirstStepsOfWindows) {
  for (const int length : {1, 2, 3, 6}) {
    Session session = planned({.steps = 60, .windows = 60 / length}, 3);
    for (std::size_t i = 0; i < session.steps.size(); i += static_cast<std::size_t>(length)) {
      session.steps[i].kernels_ns += 100'000;
      session.steps[i].begin_ns -= 100'000;
      const auto call = std::ranges::find_if(session.spans, [&](const Span& span) {
        return span.arg == 2 && span.begin_ns > session.steps[i].begin_ns;
      });
      call->begin_ns -= 100'000;  // into the call before it, which its own span hides
    }
    EXPECT_THAT(significant(compare_halves(session)), IsEmpty()) << length;
  }
}

TEST(Compare, IsTheSameEveryTime) {
  const Session before = planned({}, 1), after = planned({.slower = 1.1}, 2);
  const Comparison a = compare(before, after), b = compare(before, after);
  for (std::size_t i = 0; i < a.changes.size(); ++i) {
    EXPECT_EQ(a.changes[i].low, b.changes[i].low);
    EXPECT_EQ(a.changes[i].p, b.changes[i].p);
  }
  EXPECT_EQ(a.verdict, b.verdict);
}

// Which run is named first decides about signs alone.
TEST(Compare, IsMirroredWhereTheRunsChangePlaces) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const double some = seed % 5;
    const Planned plan{.slower = 1 + 0.3 * some,
                       .speed = 1 + 0.1 * (seed % 3),
                       .disturbed = 0.2 * some,
                       .stretched = 1.4,
                       .wait_us = 90 * some};
    const Session a = planned({.disturbed = 0.3, .stretched = 1.2}, seed),
                  b = planned(plan, 100 + seed);
    const Comparison there = compare(a, b), back = compare(b, a);
    ASSERT_EQ(there.changes.size(), back.changes.size());
    for (const Change& change : there.changes) {
      const auto same = std::ranges::find_if(back.changes, [&](const Change& other) {
        return other.what == change.what && other.phase == change.phase;
      });
      ASSERT_NE(same, back.changes.end());
      EXPECT_NEAR(change.low, -same->high, 1e-6) << change.what;
      EXPECT_NEAR(change.high, -same->low, 1e-6) << change.what;
      EXPECT_NEAR(change.p, same->p, 1e-9) << change.what;
      EXPECT_EQ(change.is_significant, same->is_significant) << change.what;
    }
  }
}

TEST(Compare, IsATable) {
  const Comparison result = compare(planned({}, 1), planned({.slower = 1.5}, 2));
  const Table table = to_table(result);
  EXPECT_EQ(table.rows.size(), result.changes.size());
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
  EXPECT_EQ(std::get<std::string>(table.rows[0][0]), "step");
  EXPECT_DOUBLE_EQ(std::get<double>(table.rows[0][4]),
                   result.changes[0].after_ns - result.changes[0].before_ns);
  EXPECT_EQ(std::get<std::string>(table.rows[0].back()), "yes");
  EXPECT_THAT(table.note, ::testing::HasSubstr("at least 1 % of the step"));
  const auto call = std::find_if(table.rows.begin(), table.rows.end(), [](const auto& row) {
    return std::get<std::string>(row[0]) == layer(2);
  });
  ASSERT_NE(call, table.rows.end());
  EXPECT_NEAR(std::get<double>((*call)[6]), 0.05, 0.005);  // of the step
}

}  // namespace

// Runs whose steps are like their neighbours, as when clocks or other programs come and go.

namespace {

// Steps of 1 ms with noise of 2 %, of which each keeps `r` of the one before.
Session drifting(double r, std::uint32_t seed) {
  testing::SessionBuilder builder;
  double now = 0, level = 0;
  for (std::uint64_t s = 0; s < 60; ++s) {
    const auto words = draw(seed, Purpose::synthetic, 5, s);
    const double u = (words[0] + 0.5) / 4294967296.0, v = words[1] / 4294967296.0;
    level = r * level +
            std::sqrt(1 - r * r) * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    const double us = 1000 * std::exp(0.02 * level);
    builder.step(s + 1, now, now + us);
    now += us;
  }
  return builder.window(1, 60, 0, now).build();
}

TEST(CompareDrift, EqualRunsSeldomDifferWhileTheyDrift) {
  int flagged = 0;
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    const Comparison found = compare(drifting(0.9, 2 * trial), drifting(0.9, 2 * trial + 1));
    flagged += found.changes.front().is_significant ? 1 : 0;
  }
  EXPECT_LE(flagged, 5);
}

}  // namespace

// How a comparison words what it found.

namespace {

using ::testing::HasSubstr;
using testing::layer;
using testing::planned;

TEST(CompareWords, CallsMostOfItOnlyWhatIsMoreThanHalf) {
  EXPECT_THAT(compare(planned({}, 1), planned({.slower = 1.5, .wait_us = 100}, 2)).verdict,
              HasSubstr("; most of it: layer2/conv forward"));
  // 250 us of the call, 230 and 200 us of the others: the largest has less than half.
  Session after = planned({.slower = 1.5, .wait_us = 230}, 2);
  for (Step& step : after.steps) step.other_ns += 200'000, step.begin_ns -= 200'000;
  EXPECT_THAT(compare(planned({}, 1), after).verdict,
              HasSubstr("; the largest part: layer2/conv forward"));
}

TEST(CompareWords, NamesPhasesAsTheReportDoesAndOnce) {
  const auto with = [](double slower, std::uint32_t seed) {
    Session session = planned({.slower = slower}, seed);
    session.program["calls"][2] = {{"title", "fc1/linear.wgrad"}, {"phase", "wgrad"}};
    session.program["calls"][3]["phase"] = "dgrad";
    return session;
  };
  const Comparison result = compare(with(1, 1), with(1.5, 2));
  EXPECT_THAT(result.verdict, HasSubstr("most of it: fc1/linear.wgrad, +2"));
  const auto phase = [&](const std::string& what) {
    return std::find_if(result.changes.begin(), result.changes.end(),
                        [&](const Change& c) { return c.what == what; })
        ->phase;
  };
  Session before = with(1, 1), after = with(1.5, 2);
  for (Session* session : {&before, &after})
    session->program["calls"][2] = {{"title", "update_all"}, {"phase", "update"}};
  EXPECT_THAT(compare(before, after).verdict, HasSubstr("most of it: update_all, +2"));
  EXPECT_EQ(phase("fc1/linear.wgrad"), "weight_grad");
  EXPECT_EQ(phase(layer(3)), "data_grad");
}

}  // namespace
}  // namespace warpstep::profiler
