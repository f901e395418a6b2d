#include "profiler/analysis/scope.h"

#include <gmock/gmock.h>

#include "profiler/analysis/analysis.h"
#include "profiler/export/quantity.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SessionBuilder;

Table table_of(const Session& session, const Analysis& analysis, const std::string& key) {
  for (const Table& table : tables(session, analysis))
    if (table.key == key) return table;
  throw std::runtime_error("no table " + key);
}

TEST(CountedSteps, AreTheSameInEveryTableOfASingleStep) {
  SessionBuilder builder;  // train --steps 1
  builder.step(1, 0, 1000, 600, 300);
  const Session session = builder.build();
  EXPECT_THAT(View(session).counted, ElementsAre(0));
  const Analysis analysis = analyse(session);
  EXPECT_EQ(analysis.breakdown.counted, 1U);
  EXPECT_EQ(analysis.breakdown.step_ns, 1e6);
  EXPECT_THAT(table_of(session, analysis, "breakdown").note, HasSubstr("over 1 step,"));
  EXPECT_EQ(analysis.stall.first_step, 1U);
  EXPECT_EQ(analysis.stall.last_step, 1U);
  // The first step waits for the first batch whatever the loader can do: no advice follows.
  EXPECT_EQ(analysis.stall.step_ns, 0);
  EXPECT_THAT(table_of(session, analysis, "stalls").note, HasSubstr("too few steps"));
  EXPECT_THAT(analysis.findings, Not(Contains(Field(&Finding::key, "data-wait"))));
}

// Steps 2 and 3 and steps 5 and 6 have windows; nothing traced the second one.
SessionBuilder two_windows() {
  SessionBuilder builder;
  for (int i = 0; i < 6; ++i) {
    const bool is_late = i >= 4;
    builder.step(static_cast<std::uint64_t>(i + 1), i * 1000, (i + 1) * 1000, 500,
                 is_late ? 400 : 100);
  }
  builder.window(2, 3, 1000, 3000).window(5, 6, 4000, 6000);
  for (int i = 1; i < 3; ++i) {
    builder.span(Kind::wait, "wait for data", i * 1000, i * 1000 + 100);
    builder.span(Kind::call, "conv", i * 1000 + 100, i * 1000 + 600);
  }
  builder.sample("cpu %", 2000, 30).sample("cpu %", 5000, 90);
  return builder;
}

TEST(CountedSteps, AreTheSameInEveryTableWhenAWindowHasNoTracedActivity) {
  const Session session = two_windows().build();
  const View view(session);
  EXPECT_THAT(view.counted, ElementsAre(1, 2));
  ASSERT_EQ(view.windows.size(), 1U);
  EXPECT_EQ(view.windows_ns(), 2'000'000U);
  EXPECT_FALSE(view.in_windows(SessionBuilder::at(4500)));
  const Analysis analysis = analyse(session);
  EXPECT_EQ(analysis.breakdown.counted, 2U);
  EXPECT_EQ(analysis.breakdown.mean[static_cast<std::size_t>(Category::data)], 0.1e6);
  EXPECT_THAT(analysis.loader.waits_ns, ElementsAre(100'000, 100'000));
  EXPECT_EQ(analysis.stall.first_step, 2U);
  EXPECT_EQ(analysis.stall.last_step, 3U);
  EXPECT_EQ(table_of(session, analysis, "stalls").rows.at(0).at(3), Cell(0.1e6));
  EXPECT_EQ(metric_level(view, "cpu %").most, 30);
}

TEST(MetricLevel, IsOfTheCountedStepsWithoutWhatLiesBetween) {
  SessionBuilder builder;
  builder.step(1, 0, 1000).step(2, 1000, 2000).step(3, 4000, 5000);
  for (const auto& [at, value] :
       {std::pair(999, 700.0), {1999, 800.0}, {3999, 100.0}, {4999, 800.0}})
    builder.sample("process cpu %", at, value);
  const Session session = builder.build();  // the first step warms up
  const MetricLevel level = metric_level(session, "process cpu %");
  EXPECT_NEAR(level.mean, 800, 1) << "not of the evaluation between steps 2 and 3";
  EXPECT_DOUBLE_EQ(level.most, 800);
  EXPECT_EQ(metric_level(session, "cpu %").count, 0U);
  builder.raw().samples.clear();
  builder.sample("process cpu %", 3000, 50);
  EXPECT_DOUBLE_EQ(metric_level(builder.build(), "process cpu %").mean, 50) << "of all of the run";
}

TEST(CountedSteps, AreThoseOfCompleteWindowsWithoutTracedActivity) {
  SessionBuilder builder = two_windows();
  builder.raw().spans.clear();
  const Session session = builder.build();
  const View view(session);
  EXPECT_THAT(view.counted, ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(view.recorded.size(), 0U);
  EXPECT_EQ(view.windows.size(), 2U);
}

TEST(CountedSteps, AreNotThoseOfAPastThatBeginsWithTheEndOfADeepWindowsWork) {
  SessionBuilder builder;
  builder.gpu().window(1, 2, 0, 2000, true).window(3, 5, 2000, 5000);
  for (int step = 1; step <= 5; ++step)
    builder.step(static_cast<std::uint64_t>(step), 1000 * (step - 1), 1000 * step);
  builder.raw().windows[1].past = 1;
  for (const double at : {100, 1100, 2100})
    builder.launch(at, at + 5, What::kernel, "k", at + 10, at + 900);
  const Session session = builder.build();
  const View view(session);
  EXPECT_THAT(view.counted, ElementsAre(0, 1));
  EXPECT_EQ(view.recorded.size(), 2U);
}

TEST(CountedSteps, LeaveOutTheFirstWithoutWindows) {
  SessionBuilder builder = two_windows();
  builder.raw().windows.clear();
  EXPECT_THAT(View(builder.build()).counted, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(View(Session{}).counted, IsEmpty());
}

TEST(KernelThreads, AreThoseAskedForElseTheUsableCores) {
  Session session;
  session.stamp = {{"cpu", {{"cores", 8}}}, {"options", {{"threads", 3}}}};
  EXPECT_EQ(kernel_threads(session), 3);
  session.loader["kernel_threads"] = 2;  // what 3 became
  EXPECT_EQ(kernel_threads(session), 2);
  session.loader["kernel_threads"] = 0;
  EXPECT_EQ(kernel_threads(session), 3);
  session.stamp["options"]["threads"] = 0;
  EXPECT_EQ(kernel_threads(session), 8);
  session.devices.emplace_back();
  EXPECT_EQ(kernel_threads(session), 0);
}

// What the loader is set to is written with a run's end.
TEST(KernelThreads, OfARunThatWasKilledAreThoseOfItsStamp) {
  Session session;
  session.stamp = {{"cpu", {{"cores", 64}}}, {"affinity", "0-1,8"}, {"options", {{"threads", 0}}}};
  EXPECT_EQ(usable_cores(session), 3);
  EXPECT_EQ(kernel_threads(session), 3);
  session.stamp["cgroup"]["cpu_quota_cores"] = 1.5;
  EXPECT_EQ(usable_cores(session), 2);
  session.stamp["device"]["threads"] = 1;
  EXPECT_EQ(kernel_threads(session), 1);
  session.loader = {{"cores", 4}, {"kernel_threads", 4}};
  EXPECT_EQ(kernel_threads(session), 4);
}

// Of the machine's GPUs the run had the second; older sessions describe and sample both.
SessionBuilder two_gpus() {
  SessionBuilder builder;
  builder.gpu().gpu().step(1, 0, 1000, 500).step(2, 1000, 2000, 500).window(1, 2, 0, 2000, true);
  Session& session = builder.raw();
  session.devices[1].name = builder.name(Kind::range, "NVIDIA H100");
  session.devices[1].compute_major = 7;
  session.stamp["gpus"] = Json::parse(R"([{"driver": "1"}, {"driver": "2"}])");
  builder.sample("gpu 0 throttle reasons", 500, 4).sample("gpu 1 throttle reasons", 500, 0);
  return builder;
}

TEST(RunDevices, AreThoseThatDidSomething) {
  SessionBuilder builder = two_gpus();
  builder.launch(10, 20, What::kernel, "k", 30, 500);
  builder.last_activity().device = 1;
  const Session session = builder.build();
  ASSERT_EQ(run_devices(session).size(), 1U);
  EXPECT_EQ(run_devices(session)[0]->id, 1U);
  EXPECT_EQ(run_title(session), "Training run on NVIDIA H100");
  EXPECT_THAT(analyse(session).trust.notes, Not(Contains(HasSubstr("throttled"))));
  builder.launch(510, 520, What::copy, "c", 530, 600);  // on the first
  EXPECT_EQ(run_devices(builder.build()).size(), 2U);
}

TEST(RunDevices, WithoutActivitiesAreTheOneThatWasAskedFor) {
  SessionBuilder builder = two_gpus();
  EXPECT_EQ(run_devices(builder.raw()).at(0)->id, 0U);
  builder.raw().stamp["options"]["device"] = "cuda:1";
  ASSERT_EQ(run_devices(builder.raw()).size(), 1U);
  EXPECT_EQ(run_devices(builder.raw())[0]->id, 1U);
  EXPECT_THAT(run_devices(Session{}), IsEmpty());
}

TEST(StampedGpu, HasTheDevicesNumberOrInOlderSessionsItsPlace) {
  Session session = two_gpus().raw();
  EXPECT_EQ(fields::text(*stamped_gpu(session, 1), "driver"), "2");
  EXPECT_EQ(stamped_gpu(session, 2), nullptr);
  session.stamp["gpus"] = Json::parse(R"([{"driver": "3", "id": 1}])");
  EXPECT_EQ(fields::text(*stamped_gpu(session, 1), "driver"), "3");
  EXPECT_EQ(stamped_gpu(session, 0), nullptr);
  session.stamp["gpus"] = 7;
  EXPECT_EQ(stamped_gpu(session, 0), nullptr);
}

}  // namespace
}  // namespace warpstep::profiler
