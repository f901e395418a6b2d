// The calls of PM sampling to CUPTI, and its samples.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/core/record.h"
#include "profiler/sources/cupti_pm_sampler.h"
#include "profiler/sources/cupti_testing_pm.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using testing::FakeCupti;
using testing::FakePm;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Nothing is read before end().
constexpr PmSettings patient{.samples_at_once = 16, .between_decodes = std::chrono::hours(1)};
constexpr std::uint64_t ms = 1'000'000;

struct Case {
  FakeCupti cupti;
  FakePm pm{cupti};

  OpenedPmSampling open(const PmSettings& settings = patient, int device = 0) {
    return open_pm_sampling(cupti.api(), pm.api(), device, settings);
  }
};

std::vector<std::string> texts(const std::vector<Sample>& samples) {
  std::vector<std::string> all;
  for (const Sample& sample : samples)
    all.push_back(fmt::format("{}: {}", record::names(0)[sample.name].text, sample.value));
  return all;
}

TEST(CuptiPmSampling, GivesTheSamplesOfAWindow) {
  Case c;
  OpenedPmSampling opened = c.open();
  ASSERT_NE(opened.sampling, nullptr) << opened.why;
  EXPECT_EQ(opened.why, "");
  EXPECT_EQ(opened.sampling->what(), "SM active %, tensor pipe %, DRAM %");
  opened.sampling->begin();
  c.pm.sample({99, 99, 99});  // the first sample begins at an unknown time
  const std::uint64_t from = c.cupti.monotonic_ns();
  c.pm.sample({80, 40, 25});
  c.pm.sample({60, 30, 12.5});
  const std::uint64_t to = c.cupti.monotonic_ns();
  const Measured measured = opened.sampling->end(from, to);
  EXPECT_THAT(
      texts(measured.samples),
      ElementsAre("gpu 0 SM active %: 80", "gpu 0 tensor pipe %: 40", "gpu 0 DRAM %: 25",
                  "gpu 0 SM active %: 60", "gpu 0 tensor pipe %: 30", "gpu 0 DRAM %: 12.5"));
  EXPECT_EQ(measured.samples.front().at_ns, from + ms);  // of the millisecond before
  EXPECT_EQ(measured.samples.back().at_ns, to);
  EXPECT_THAT(measured.notes, IsEmpty());
  opened.sampling.reset();
  EXPECT_THAT(c.pm.calls, ElementsAre("initialize", "enable", "set_config", "start", "stop",
                                      "disable", "deinitialize"));
  EXPECT_EQ(c.pm.hosts, 0);
  EXPECT_TRUE(c.pm.config_image_kept);
}

TEST(CuptiPmSampling, SamplesEveryMillisecondIntoALargeBuffer) {
  Case c;
  const OpenedPmSampling opened = c.open();
  EXPECT_EQ(c.pm.config.samplingInterval, ms);
  EXPECT_EQ(c.pm.config.triggerMode, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
  EXPECT_EQ(c.pm.config.hardwareBufferSize, 64U << 20);
  EXPECT_EQ(c.pm.config.hwBufferAppendMode,
            CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST);
}

TEST(CuptiPmSampling, CountsCyclesWhereTheChipHasNoTriggerByTime) {
  for (const char* chip : {"GA100", "TU102"}) {
    Case c;
    c.pm.chip = chip;
    const OpenedPmSampling opened = c.open();
    ASSERT_NE(opened.sampling, nullptr) << opened.why;
    EXPECT_EQ(c.pm.config.triggerMode, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
    EXPECT_EQ(c.pm.config.samplingInterval, 1'000'000U);
  }
}

TEST(CuptiPmSampling, LeavesOutSamplesThatAreNotCompletelyInTheWindow) {
  Case c;
  const OpenedPmSampling opened = c.open();
  opened.sampling->begin();
  for (int i = 0; i < 5; ++i) c.pm.sample({double(i), 0, 0});
  const std::uint64_t now = c.cupti.monotonic_ns();
  const Measured measured = opened.sampling->end(now - 3 * ms - 1, now - 1);
  ASSERT_EQ(measured.samples.size(), 6U);
  EXPECT_EQ(measured.samples[0].value, 2);
  EXPECT_EQ(measured.samples[3].value, 3);
  opened.sampling->begin();  // a warm-up without a window
  c.pm.sample({});
  c.pm.sample({});
  const Measured nothing = opened.sampling->end(0, 0);
  EXPECT_THAT(nothing.samples, IsEmpty());
  EXPECT_THAT(nothing.notes, IsEmpty());
}

TEST(CuptiPmSampling, StopsBetweenWindows) {
  Case c;
  const OpenedPmSampling opened = c.open();
  for (const double value : {1.0, 2.0}) {
    opened.sampling->begin();
    opened.sampling->begin();  // once is enough
    c.pm.sample({});
    const std::uint64_t from = c.cupti.monotonic_ns();
    for (int i = 0; i < 50; ++i) c.pm.sample({value, value, value});  // several images of data
    const Measured measured = opened.sampling->end(from, c.cupti.monotonic_ns());
    ASSERT_EQ(measured.samples.size(), 150U);
    for (const Sample& sample : measured.samples) EXPECT_EQ(sample.value, value);
    c.pm.sample({77, 77, 77});
    EXPECT_EQ(c.pm.waiting(), 0U);
  }
  EXPECT_THAT(opened.sampling->end(0, ~std::uint64_t{0}).samples, IsEmpty());  // there is none
}

// The thread reads while the window is open: the hardware's buffer stays small.
TEST(CuptiPmSampling, ReadsWhileItSamples) {
  Case c;
  c.pm.faults.hardware_samples = 20;
  const OpenedPmSampling opened = c.open({.samples_at_once = 4,
                                          .between_decodes = std::chrono::milliseconds(1),
                                          .between_readings = std::chrono::milliseconds(2)});
  opened.sampling->begin();
  const std::uint64_t from = c.cupti.monotonic_ns();
  for (int i = 0; i < 101; ++i) {
    c.pm.sample({double(i), 0, 0});
    while (i % 10 == 0 && c.pm.waiting() > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  const Measured measured = opened.sampling->end(from, c.cupti.monotonic_ns());
  EXPECT_THAT(measured.notes, IsEmpty());
  ASSERT_EQ(measured.samples.size(), 300U);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(measured.samples[3 * i].value, double(i + 1));
}

TEST(CuptiPmSampling, FollowsAClockThatDrifts) {
  Case c;
  c.cupti.drift = 5e-4;
  const OpenedPmSampling opened = c.open();
  opened.sampling->begin();
  c.pm.sample({});
  const std::uint64_t from = c.cupti.monotonic_ns();
  for (int i = 0; i < 1000; ++i) c.pm.sample({});
  const std::uint64_t to = c.cupti.monotonic_ns();
  const Measured measured = opened.sampling->end(from - ms / 2, to + ms / 2);
  ASSERT_EQ(measured.samples.size(), 3000U);
  for (std::uint64_t i = 0; i < 1000; ++i)
    EXPECT_NEAR(double(measured.samples[3 * i].at_ns), double(from + (i + 1) * ms), 2000);
}

TEST(CuptiPmSampling, ChoosesTheMetricThatTheChipHas) {
  Case c;
  const CuptiApi cupti = c.cupti.api();
  const CuptiPmApi pm = c.pm.api();
  c.pm.faults.absent = {"sm__pipe_tensor_cycles_active_realtime_v2"};
  {
    PmHost host(cupti, pm, "GH100");
    EXPECT_THAT(host.names(), ElementsAre(HasSubstr("sm__cycles_active."),
                                          HasSubstr("sm__pipe_tensor_cycles_active_realtime."),
                                          HasSubstr("gpu__dram_throughput.")));
    EXPECT_EQ(host.config_image()[0], 1);
    EXPECT_THAT(host.lacking(), IsEmpty());
  }
  c.pm.faults.in_more_passes = {"sm__pipe_tensor_cycles_active_realtime", "gpu__dram_throughput"};
  PmHost host(cupti, pm, "GH100");
  EXPECT_THAT(host.shown(), ElementsAre("SM active %", "tensor pipe %"));
  EXPECT_THAT(host.names()[1], HasSubstr("sm__pipe_tensor_cycles_active."));
  EXPECT_EQ(host.config_image()[0], 1);  // not that of the last try
  EXPECT_THAT(host.lacking(),
              ElementsAre("DRAM %: GH100 cannot count it in one pass with the others"));
}

TEST(CuptiPmSampling, EndsInsideAWindowAndCanBeOpenedAgain) {
  Case c;
  {
    const OpenedPmSampling opened = c.open();
    opened.sampling->begin();
    c.pm.sample({});
  }
  EXPECT_THAT(c.pm.calls, ElementsAre("initialize", "enable", "set_config", "start", "stop",
                                      "disable", "deinitialize"));
  EXPECT_NE(c.open().sampling, nullptr);
}

}  // namespace
}  // namespace warpstep::profiler
