#include <gmock/gmock.h>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/findings.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SessionBuilder;

// Two steps of 100 us in a window, ten spans in each.
SessionBuilder quiet() {
  SessionBuilder builder;
  for (int s = 0; s < 2; ++s) {
    builder.step(static_cast<std::uint64_t>(s + 1), 100 * s, 100 * (s + 1), 80);
    for (int i = 0; i < 10; ++i)
      builder.span(Kind::call, "c", 100 * s + i, 100 * s + i + 0.5, 0, 1);
  }
  builder.window(1, 2, 0, 200.001);
  return builder;
}

Breakdown of_100_us() {
  Breakdown breakdown;
  breakdown.step_ns = 100'000;
  return breakdown;
}

Trust trust_of(SessionBuilder& builder) {
  return find_trust(builder.build(), of_100_us());
}

TEST(Trust, CountsWhatRecordingCost) {
  SessionBuilder builder = quiet();
  Trust trust = trust_of(builder);
  EXPECT_DOUBLE_EQ(trust.overhead_ns, 1000);  // 10 spans of 100 ns per step
  EXPECT_DOUBLE_EQ(trust.overhead_share, 0.01);
  EXPECT_THAT(trust.notes, ElementsAre(HasSubstr("recording cost 1.00 us per step (1.0 %)")));
  builder.raw().stamp["profiler"] = {{"span_ns", 40}, {"activity_ns", 500}};
  builder.launch(10, 12, What::kernel, "k", 13, 20);
  trust = trust_of(builder);
  EXPECT_DOUBLE_EQ(trust.overhead_ns, 400 + 500);  // a launch is two records: 1000 ns in two steps
  EXPECT_THAT(trust.notes, IsEmpty());             // 0.9 %
}

// Steps of 100 us outside of a window of steps 41 to 80, in which they are longer by this.
SessionBuilder deep_among_others(double longer) {
  SessionBuilder builder;
  builder.gpu();
  double at = 0, begin = 0, end = 0;
  for (int i = 1; i <= 120; ++i) {
    const bool is_deep = i > 40 && i <= 80;
    const double length = 100 + (is_deep ? longer : 0) + 0.1 * (i % 3);
    builder.step(static_cast<std::uint64_t>(i), at, at + length, 80);
    if (i == 41) begin = at;
    if (is_deep) builder.launch(at + 1, at + 2, What::kernel, "k", at + 3, at + 83);
    at += length;
    if (i == 80) end = at;
  }
  builder.window(41, 80, begin, end, true);
  return builder;
}

// No run calibrates what a device's record costs.
TEST(Trust, DoesNotKnowWhatDeviceRecordsCost) {
  SessionBuilder builder = quiet();
  builder.gpu().launch(10, 12, What::kernel, "k", 13, 20);
  const Trust unknown = trust_of(builder);
  EXPECT_EQ(unknown.cost, Trust::Cost::unknown);
  EXPECT_FALSE(costs_little(unknown));
  builder.raw().stamp["profiler"] = {{"span_ns", 1}, {"activity_ns", 1}};
  const Trust known = trust_of(builder);
  EXPECT_EQ(known.cost, Trust::Cost::calibrated);
  EXPECT_TRUE(costs_little(known));
}

TEST(Trust, MeasuresWhatDeviceRecordsCostByTheStepsOutside) {
  SessionBuilder slower = deep_among_others(10);
  const Trust much = trust_of(slower);
  EXPECT_EQ(much.cost, Trust::Cost::measured);
  EXPECT_NEAR(much.overhead_ns, 10'000, 100);
  EXPECT_NEAR(much.overhead_share, 0.1, 0.001);
  EXPECT_LT(much.overhead_error_ns, 100);
  EXPECT_FALSE(costs_little(much));
  EXPECT_THAT(much.notes, Contains(HasSubstr("recording cost 10.0 us per step")));
  SessionBuilder equal = deep_among_others(0);
  const Trust little = trust_of(equal);
  EXPECT_EQ(little.overhead_ns, 0);
  EXPECT_TRUE(costs_little(little));
  SessionBuilder few = deep_among_others(0);
  few.raw().steps.resize(80);
  few.raw().steps.erase(few.raw().steps.begin(), few.raw().steps.begin() + 20);
  EXPECT_EQ(trust_of(few).cost, Trust::Cost::unknown) << "too few steps outside";
}

TEST(Trust, SaysThatTheRunHadNoEnd) {
  SessionBuilder builder = quiet();
  const auto notes = [&](const char* phase) {
    builder.raw().phases = {{.begin_ns = SessionBuilder::at(0),
                             .end_ns = SessionBuilder::at(1),
                             .name = builder.name(Kind::range, phase)}};
    return trust_of(builder).notes;
  };
  EXPECT_THAT(notes("end"), Not(Contains(HasSubstr("killed"))));
  const char* const killed = "the session ends after step 2, not with the run: it was killed";
  EXPECT_THAT(notes("start"), Contains(HasSubstr(killed)));
  builder.sample("memory available bytes", 150, 63 << 20);
  EXPECT_THAT(notes("start"), Contains(HasSubstr("63 MiB of memory were left")));
}

TEST(Trust, SaysThatTheProgramWasNotBuiltForSpeed) {
  SessionBuilder builder = quiet();
  const auto built = [&](const char* compiler) {
    builder.raw().stamp["program"] = {{"compiler", compiler}};
    return trust_of(builder);
  };
  EXPECT_FALSE(built("GNU 12.2.0, Release").is_disturbed);
  EXPECT_TRUE(built("GNU 12.2.0, Debug").is_disturbed);
  const Trust sanitized = built("Clang 19.1.0, Release, sanitizers: address, undefined");
  EXPECT_TRUE(sanitized.is_disturbed);
  EXPECT_THAT(sanitized.notes, Contains(HasSubstr("not built for speed (Clang 19.1.0")));
}

TEST(Trust, CountsTheSpansOfALoaderOnlyWhereStepsWaitForIt) {
  SessionBuilder builder = quiet();
  builder.thread(5000, "loader 0").thread(5001, "loader 1").thread(5002, "copier");
  for (int i = 0; i < 22; ++i) builder.span(Kind::stage, "decode", 9 * i, 9 * i + 5, 1);
  for (int i = 0; i < 40; ++i) builder.span(Kind::copy, "copy", 4 * i, 4 * i + 2, 3);
  EXPECT_DOUBLE_EQ(trust_of(builder).overhead_ns, 1000) << "they record at the same time";
  const auto awaited = [&](int workers) {
    return find_trust(builder.build(), of_100_us(), workers).overhead_ns;
  };
  EXPECT_DOUBLE_EQ(awaited(1), 1100);
  EXPECT_DOUBLE_EQ(awaited(2), 1000) << "half of its spans each, less than the trainer's";
  for (int i = 0; i < 22; ++i) builder.span(Kind::stage, "decode", 9 * i, 9 * i + 5, 2);
  EXPECT_DOUBLE_EQ(awaited(2), 1100);
}

TEST(Trust, DoesNotCountAnEvaluationBetweenSteps) {
  SessionBuilder builder;
  builder.gpu().raw().stamp["profiler"] = {{"span_ns", 100}, {"activity_ns", 500}};
  for (int s = 0; s < 2; ++s) {
    const double at = 300 * s;
    builder.step(static_cast<std::uint64_t>(s + 1), at, at + 100, 80);
    for (int i = 0; i < 10; ++i) builder.span(Kind::call, "c", at + i, at + i + 0.5, 0, 1);
    builder.launch(at + 20, at + 22, What::kernel, "k", at + 23, at + 40);
  }
  builder.window(1, 2, 0, 400.001, true);
  EXPECT_DOUBLE_EQ(trust_of(builder).overhead_ns, 10 * 100 + 2 * 500);
  for (int i = 0; i < 20; ++i) builder.span(Kind::call, "c", 100 + 9 * i, 105 + 9 * i, 0, 1);
  builder.launch(110, 112, What::kernel, "k", 113, 120);
  EXPECT_DOUBLE_EQ(trust_of(builder).overhead_ns, 10 * 100 + 2 * 500);
}

TEST(Trust, DoesNotCountSpansOutsideOfWindows) {
  SessionBuilder builder = quiet();
  builder.step(3, 200.001, 300).span(Kind::call, "c", 250, 260, 0, 1);
  EXPECT_DOUBLE_EQ(trust_of(builder).overhead_ns, 1000);
}

TEST(Trust, PassesOnWhatWasLost) {
  SessionBuilder builder = quiet();
  builder.raw().stamp["profiler"]["span_ns"] = 10;
  builder.raw().losses = {.entries = 1, .activities = 2, .without_times = 3, .cut_bytes = 4};
  builder.raw().notes = {"no NVML"};
  const Trust trust = trust_of(builder);
  EXPECT_EQ(trust.losses.cut_bytes, 4U);
  EXPECT_THAT(
      trust.notes,
      ElementsAre("no NVML", HasSubstr("1 span lost"), HasSubstr("2 device records dropped"),
                  HasSubstr("3 device records came"), HasSubstr("last 4 bytes")));
}

TEST(Trust, TellsOfDamage) {
  SessionBuilder builder = quiet();
  builder.raw().losses = {.damaged_chunks = 2, .damaged_bytes = 80, .damaged_records = 1};
  EXPECT_THAT(trust_of(builder).notes,
              Contains(AllOf(HasSubstr("2 chunks"), HasSubstr("80 bytes"), HasSubstr("1 record"))));
}

TEST(Trust, TellsOfWindowsThatDidNotEnd) {
  SessionBuilder builder = quiet();
  builder.window(5, 9, 400, 500);
  builder.raw().windows.back().complete = 0;
  EXPECT_THAT(trust_of(builder).notes, Contains(HasSubstr("window of steps 5-9")));
  builder.raw().windows.clear();
  const Trust trust = trust_of(builder);
  EXPECT_THAT(trust.notes, Contains(HasSubstr("no step was recorded with spans")));
  EXPECT_EQ(trust.overhead_ns, 0);
}

TEST(Trust, TellsOfAWindowInWhichTheSessionEnds) {
  SessionBuilder builder = quiet();
  Window& window = builder.raw().windows.back();
  window.cut = 1;
  const auto notes = [&] { return trust_of(builder).notes; };
  EXPECT_THAT(notes(), Contains("the session ends inside the window of steps 1-2: the run was "
                                "killed there, or still trained; the window counts up to its last "
                                "whole step"));
  window.deep = 1;
  EXPECT_THAT(notes(), Contains(HasSubstr("the GPU's work in the window was not yet written")));
  window.complete = 0;
  EXPECT_THAT(notes(), Contains(AllOf(HasSubstr("steps 1-2"), HasSubstr("is left out"))));
}

TEST(Trust, KnowsTheClocksError) {
  SessionBuilder builder = quiet();
  builder.gpu();
  builder.raw().clocks = {{1, 2, 3, 700}, {4, 5, 6, 49'999}};
  EXPECT_EQ(trust_of(builder).clock_error_ns, 49'999U);
  EXPECT_THAT(trust_of(builder).notes, Not(Contains(HasSubstr("against each other"))));
  builder.raw().clocks.push_back({7, 8, 9, 50'000});
  EXPECT_THAT(trust_of(builder).notes, Contains(HasSubstr("off by 50.0 us against each other")));
}

TEST(Trust, TellsOfThrottlingButNotOfIdleness) {
  SessionBuilder builder = quiet();
  builder.gpu().sample("gpu 0 throttle reasons", 10, 1).sample("gpu 0 throttle reasons", 20, 2);
  EXPECT_THAT(trust_of(builder).notes, Not(Contains(HasSubstr("clocks"))));
  builder.sample("gpu 0 throttle reasons", 30, 0x24).sample("gpu 0 throttle reasons", 40, 0);
  EXPECT_THAT(trust_of(builder).notes,
              Contains("GPU 0 throttled its clocks in 25.0 % of the samples (power cap, thermal)"));
}

TEST(Trust, TellsOfOtherPrograms) {
  SessionBuilder builder = quiet();
  builder.raw().stamp["cpu"]["cores"] = 4;
  builder.sample("cpu %", 50, 99).sample("process cpu %", 50, 360);
  EXPECT_THAT(trust_of(builder).notes, Not(Contains(HasSubstr("other programs"))));
  EXPECT_FALSE(trust_of(builder).is_disturbed);
  builder.raw().samples.clear();
  builder.sample("cpu %", 50, 99).sample("process cpu %", 50, 352);
  EXPECT_THAT(trust_of(builder).notes, Contains(HasSubstr("other programs used 11.0 %")));
  EXPECT_TRUE(trust_of(builder).is_disturbed);
}

TEST(Trust, AsksWhetherIdleCoresCoverOtherPrograms) {
  const auto is_disturbed = [](int cores, double own, double others, double delay) {
    SessionBuilder builder = quiet();
    builder.raw().stamp["cpu"]["cores"] = cores;
    builder.sample("cpu %", 50, (own + others) / cores * 100)
        .sample("process cpu %", 50, own * 100)
        .sample("main run delay %", 50, delay);
    const Session session = builder.build();
    const View view(session);
    const Analysis analysis{.contention = contention(view)};
    const bool found = find_trust(view, of_100_us()).is_disturbed;
    EXPECT_EQ(Facts(view, analysis).lacks_cores(), found);
    return found;
  };
  EXPECT_FALSE(is_disturbed(2, 0.75, 0.6, 4.9));
  EXPECT_TRUE(is_disturbed(2, 0.85, 0.6, 4.9));
  EXPECT_FALSE(is_disturbed(2, 1.9, 0.1, 5.1)) << "little";
  EXPECT_TRUE(is_disturbed(2, 0.75, 0.6, 5.1));
  EXPECT_FALSE(is_disturbed(8, 6.75, 0.6, 4.9));
  EXPECT_TRUE(is_disturbed(8, 6.85, 0.6, 4.9));
  EXPECT_FALSE(is_disturbed(8, 7.5, 0.45, 5.1));
  EXPECT_FALSE(is_disturbed(128, 1, 1, 4.9)) << "126 idle cores";
  EXPECT_TRUE(is_disturbed(128, 1, 1, 5.1));
  EXPECT_FALSE(is_disturbed(128, 1, 20, 0));
  EXPECT_TRUE(is_disturbed(128, 126.5, 1, 0));
}

TEST(Trust, AddsUpWhatOthersAndTheHypervisorTook) {
  SessionBuilder builder = quiet();
  builder.raw().stamp["cpu"]["cores"] = 8;
  builder.sample("cpu %", 50, 90).sample("process cpu %", 50, 600);
  EXPECT_TRUE(trust_of(builder).is_disturbed) << "1.2 beside 0.8 idle";
  builder.sample("stolen cpu %", 50, 60);
  EXPECT_THAT(trust_of(builder).notes, AllOf(Contains(HasSubstr("other programs used 7.5 %")),
                                             Contains(HasSubstr("the hypervisor gave 0.60"))));
}

TEST(Trust, TellsRanksOfTheJobAndTheHypervisorFromOtherPrograms) {
  SessionBuilder builder = quiet();
  builder.raw().stamp["cpu"]["cores"] = 2;
  builder.sample("cpu %", 50, 100).sample("process cpu %", 50, 100);
  SessionBuilder alone = builder;
  builder.sample("siblings cpu %", 50, 95);
  EXPECT_FALSE(trust_of(builder).is_disturbed) << "a rank on the other core";
  alone.sample("stolen cpu %", 50, 95);
  EXPECT_THAT(trust_of(alone).notes,
              Contains("the hypervisor gave 0.95 of 2 cores to other virtual machines"));
  EXPECT_THAT(trust_of(alone).notes, Not(Contains(HasSubstr("other programs"))));
  EXPECT_TRUE(trust_of(alone).is_disturbed);
}

TEST(Trust, TellsOfAQuotaAndOfShortMemory) {
  SessionBuilder builder = quiet();
  builder.sample("cpu periods/s", 50, 10).sample("cpu throttled periods/s", 50, 0.09);
  builder.sample("memory pressure %", 50, 0.9);
  EXPECT_FALSE(trust_of(builder).is_disturbed);
  SessionBuilder quota = quiet();
  quota.sample("cpu periods/s", 50, 10).sample("cpu throttled periods/s", 50, 0.1);
  EXPECT_THAT(trust_of(quota).notes, Contains(HasSubstr("quota stopped the run in 1.0 %")));
  EXPECT_TRUE(trust_of(quota).is_disturbed);
  SessionBuilder memory = quiet();
  memory.sample("memory pressure %", 50, 1);
  EXPECT_THAT(trust_of(memory).notes, Contains(HasSubstr("waited for it 1.0 %")));
  EXPECT_TRUE(trust_of(memory).is_disturbed);
  memory.sample("memory available bytes", 50, 20.0 * (1 << 30)).sample("major faults/s", 50, 0);
  EXPECT_FALSE(trust_of(memory).is_disturbed) << "other groups waited";
}

TEST(Trust, TellsOfCallsAboveTheMeasuredPeak) {
  struct Case {
    const char* implementation;
    double executed_flops;  // 0: a session without them
    bool is_too_fast;
  };
  for (const auto& [implementation, executed, is_too_fast] :
       {Case{"gemm", 0, true}, Case{"gemm", 1e6, true}, Case{"gemm", 4.4e5, false},
        Case{"winograd 4x4, AVX2", 6e5, true}, Case{"winograd 4x4, AVX2", 2.5e5, false},
        Case{"cudnn engine 7, winograd", 1e6, false}}) {
    SCOPED_TRACE(::testing::Message() << implementation << ", FLOPs executed: " << executed);
    SessionBuilder builder = quiet();
    builder.raw().program["calls"] = Json::array({Json::object(),
                                                  {{"title", "c"},
                                                   {"op", "linear"},
                                                   {"implementation", implementation},
                                                   {"flops", 1e6},
                                                   {"bytes", 0}}});
    if (executed > 0) builder.raw().program["calls"][1]["executed_flops"] = executed;
    builder.raw().peaks = {{"flops_per_second", {{"fp32", 1e12}}}, {"bytes_per_second", 1e9}};
    const Trust trust = analyse(builder.build()).trust;
    EXPECT_EQ(trust.is_disturbed, is_too_fast);
    if (is_too_fast) {
      EXPECT_THAT(trust.notes,
                  Contains(HasSubstr("1 call computed faster than the measured peak")));
    }
  }
}

TEST(Trust, TellsThatTheMachineIsSlowerThanAtItsBest) {
  const auto ended_at = [](double flops) {
    SessionBuilder builder = quiet();
    builder.raw().peaks = {{"flops_per_second", {{"fp32", 1e12}}},
                           {"now", {{"flops_per_second", {{"fp32", flops}}}}}};
    return builder;
  };
  const auto slow = Contains(HasSubstr("reached 60.0 % of the best peak seen on it"));
  const Trust trust = analyse(ended_at(6e11).build()).trust;
  EXPECT_THAT(trust.notes, slow);
  EXPECT_TRUE(trust.is_disturbed);
  EXPECT_FALSE(analyse(ended_at(9e11).build()).trust.is_disturbed);
  SessionBuilder gpu = ended_at(6e11);
  gpu.gpu();
  EXPECT_THAT(analyse(gpu.build()).trust.notes, Contains(HasSubstr("this GPU reached 60.0 %")));
  // What other programs explain is reported as such.
  SessionBuilder busy = ended_at(6e11);
  busy.raw().stamp["cpu"]["cores"] = 2;
  busy.sample("cpu %", 50, 100).sample("process cpu %", 50, 100);
  EXPECT_THAT(analyse(busy.build()).trust.notes, Not(slow));
}

TEST(Trust, CopesWithAnEmptySession) {
  const Trust trust = find_trust(Session{}, Breakdown{});
  EXPECT_EQ(trust.overhead_share, 0);
  EXPECT_EQ(trust.notes.size(), 1U);
}

}  // namespace
}  // namespace warpstep::profiler
