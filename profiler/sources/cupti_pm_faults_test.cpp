// When the GPU's counters fail, training continues and one note says why.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "profiler/sources/cupti_pm_sampler.h"
#include "profiler/sources/cupti_testing_pm.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeCupti;
using testing::FakePm;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CuptiPmFaults : public ::testing::Test {
 protected:
  OpenedPmSampling open(int device = 0) {
    return open_pm_sampling(cupti.api(), pm.api(), device, settings);
  }

  // Nothing is sampled, and everything is released.
  std::string why_not(int device = 0) {
    pm.calls.clear();
    const OpenedPmSampling opened = open(device);
    EXPECT_EQ(opened.sampling, nullptr);
    EXPECT_TRUE(opened.why.starts_with("The GPU's counters are not sampled: ")) << opened.why;
    EXPECT_TRUE(opened.why.ends_with('.')) << opened.why;
    EXPECT_EQ(pm.hosts, 0);
    const auto count = [&](const char* call) { return std::ranges::count(pm.calls, call); };
    EXPECT_EQ(count("initialize") - (pm.faults.results.contains("initialize") ? 1 : 0),
              count("deinitialize"));
    EXPECT_EQ(count("enable") - (pm.faults.results.contains("enable") ? 1 : 0), count("disable"));
    return opened.why;
  }

  std::string why_not(const char* function, CUptiResult result) {
    pm.faults.results = {{function, result}};
    return why_not();
  }

  // A window of `count` samples after the first one.
  Measured window(PmSampling& sampling, int count = 3) {
    sampling.begin();
    const std::uint64_t from = cupti.monotonic_ns();
    for (int i = 0; i < count + 1; ++i) pm.sample({50, 50, 50});
    return sampling.end(from, cupti.monotonic_ns());
  }

  FakeCupti cupti;
  FakePm pm{cupti};
  PmSettings settings{.samples_at_once = 16, .between_decodes = std::chrono::hours(1)};
};

TEST_F(CuptiPmFaults, NoDriver) {
  cupti.faults.no_driver = true;
  EXPECT_THAT(why_not(), HasSubstr("no NVIDIA driver (libcuda.so.1: cannot open"));
  EXPECT_THAT(pm.calls, IsEmpty());
}

TEST_F(CuptiPmFaults, NoDevice) {
  cupti.faults.no_device = true;
  EXPECT_THAT(why_not(), HasSubstr("finds no GPU: cuInit gave 100"));
  EXPECT_THAT(pm.calls, IsEmpty());
}

TEST_F(CuptiPmFaults, NoLibraryOrAnother) {
  cupti.faults.no_library = true;
  EXPECT_THAT(why_not(), HasSubstr("install the package cuda-cupti-13-0"));
  cupti.faults.no_library = false;
  cupti.faults.version = 130600;
  EXPECT_THAT(why_not(), HasSubstr("has version 130600"));
  cupti.faults.version = CUPTI_API_VERSION;
  pm.faults.missing = "libnvperf_host.so: cannot open shared object file";
  EXPECT_THAT(why_not(), AllOf(HasSubstr("libnvperf_host.so: cannot open"),
                               HasSubstr("install the package cuda-cupti-13-0 in full")));
  EXPECT_THAT(pm.calls, IsEmpty());
}

TEST_F(CuptiPmFaults, NoPermission) {
  for (const char* function : {"counter_availability", "enable", "set_config"})
    EXPECT_THAT(
        why_not(function, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES),
        AllOf(HasSubstr("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"), HasSubstr("CAP_SYS_ADMIN"),
              HasSubstr("NVreg_RestrictProfilingToAdminUsers=0")))
        << function;
}

TEST_F(CuptiPmFaults, AChipThatDoesNotSupportIt) {
  pm.faults.v_gpu = CUPTI_PROFILER_CONFIGURATION_DISABLED;
  EXPECT_THAT(why_not(), HasSubstr("GPU 0 does not support PM sampling: it is a virtual GPU"));
  pm.faults.v_gpu = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  EXPECT_THAT(why_not("host_initialize", CUPTI_ERROR_INVALID_CHIP_NAME),
              AllOf(HasSubstr("the chip GH100 is not supported"), HasSubstr("(46)")));
  EXPECT_THAT(why_not("set_config", CUPTI_ERROR_NOT_SUPPORTED),
              AllOf(HasSubstr("cuptiPmSamplingSetConfig gave"), HasSubstr("(27)")));
  pm.faults.results = {{"device_supported", CUPTI_ERROR_UNKNOWN}};  // that is no answer
  EXPECT_NE(open().sampling, nullptr);
}

TEST_F(CuptiPmFaults, AnotherToolHoldsThem) {
  for (const CUptiResult result :
       {CUPTI_ERROR_INVALID_OPERATION, CUPTI_ERROR_HARDWARE_BUSY, CUPTI_ERROR_UNKNOWN})
    for (const char* function : {"counter_availability", "enable", "set_config"})
      EXPECT_THAT(why_not(function, result), AllOf(HasSubstr("another tool may hold the counters"),
                                                   HasSubstr("dcgmi profile --pause")));
  EXPECT_THAT(why_not("chip_name", CUPTI_ERROR_UNKNOWN), Not(HasSubstr("another tool")));
}

TEST_F(CuptiPmFaults, AnyFunctionOfTheStart) {
  for (const char* function :
       {"initialize", "chip_name", "config_image_size", "config_image", "passes",
        "counter_data_size", "counter_availability", "enable", "set_config"})
    EXPECT_THAT(why_not(function, CUPTI_ERROR_INVALID_PARAMETER), HasSubstr(" gave "));
  pm.faults.results.clear();
  EXPECT_NE(open().sampling, nullptr);
}

TEST_F(CuptiPmFaults, OnceInAProcess) {
  const OpenedPmSampling first = open();
  ASSERT_NE(first.sampling, nullptr);
  EXPECT_THAT(open().why, HasSubstr("only once at a time"));
  EXPECT_EQ(std::ranges::count(pm.calls, "deinitialize"), 0);
}

TEST_F(CuptiPmFaults, ADeviceThatIsNotThere) {
  EXPECT_THAT(why_not(7), HasSubstr("the driver has no GPU 7: cuDeviceGet gave 101"));
}

TEST_F(CuptiPmFaults, AMetricThatTheChipLacks) {
  pm.faults.absent = {"gpu__dram_throughput"};
  const OpenedPmSampling opened = open();
  ASSERT_NE(opened.sampling, nullptr);
  EXPECT_EQ(opened.why,
            "The GPU's counters are sampled in part: DRAM %: GH100 has no such counters.");
  EXPECT_EQ(opened.sampling->what(), "SM active %, tensor pipe %");
  EXPECT_EQ(window(*opened.sampling).samples.size(), 6U);
}

TEST_F(CuptiPmFaults, AChipThatLacksAllOfThem) {
  pm.faults.absent = {"sm__cycles_active", "sm__pipe_tensor_cycles_active_realtime_v2",
                      "sm__pipe_tensor_cycles_active_realtime", "sm__pipe_tensor_cycles_active",
                      "gpu__dram_throughput"};
  EXPECT_THAT(why_not(), HasSubstr("the chip GH100 has none of the requested counters"));
  pm.faults.absent.clear();
  EXPECT_THAT(why_not("add_metrics", CUPTI_ERROR_INVALID_METRIC_NAME),
              HasSubstr("has none of the requested"));
}

TEST_F(CuptiPmFaults, AnOverflowIsCountedAndReported) {
  for (const bool error : {false, true}) {
    pm.faults.overflow_is_an_error = error;
    pm.faults.hardware_samples = 3;
    const OpenedPmSampling opened = open();
    const Measured measured = window(*opened.sampling, 10);
    EXPECT_EQ(measured.samples.size(), 6U);  // two after the first
    EXPECT_THAT(measured.notes, ElementsAre("The buffer of the GPU's counters overflowed (in 1 "
                                            "readings): samples are missing."));
    pm.faults.hardware_samples = 100;
    EXPECT_THAT(window(*opened.sampling).notes, IsEmpty());
  }
}

TEST_F(CuptiPmFaults, AStartThatFailsIsReportedOnce) {
  const OpenedPmSampling opened = open();
  pm.faults.results = {{"start", CUPTI_ERROR_HARDWARE_BUSY}};
  EXPECT_THAT(window(*opened.sampling).notes,
              ElementsAre(AllOf(HasSubstr("The GPU's counters are no longer sampled: "
                                          "cuptiPmSamplingStart gave"),
                                HasSubstr("another tool may hold"))));
  pm.faults.results.clear();
  EXPECT_THAT(window(*opened.sampling).notes, IsEmpty());
  EXPECT_EQ(std::ranges::count(pm.calls, "start"), 1);
}

TEST_F(CuptiPmFaults, AFailureInAWindowIsReportedOnceAndEndsIt) {
  for (const char* function : {"decode", "counter_data_info", "sample_info", "evaluate",
                               "initialize_counter_data", "stop"}) {
    settings.between_decodes = std::chrono::milliseconds(1);
    const OpenedPmSampling opened = open();
    ASSERT_NE(opened.sampling, nullptr);
    pm.faults.results = {{function, CUPTI_ERROR_UNKNOWN}};
    EXPECT_THAT(window(*opened.sampling).notes,
                ElementsAre(AllOf(HasSubstr("no longer sampled: cupti"), HasSubstr("(999)"))))
        << function;
    EXPECT_THAT(window(*opened.sampling).notes, IsEmpty()) << function;
    pm.faults.results.clear();
  }
}

TEST_F(CuptiPmFaults, SamplesFromBeforeAFailureStay) {
  settings.between_decodes = std::chrono::milliseconds(1);
  const OpenedPmSampling opened = open();
  pm.faults.results = {{"stop", CUPTI_ERROR_UNKNOWN}};
  opened.sampling->begin();
  const std::uint64_t from = cupti.monotonic_ns();
  for (int i = 0; i < 4; ++i) pm.sample({50, 50, 50});
  while (pm.waiting() > 0) {
  }
  const std::uint64_t to = cupti.monotonic_ns();
  const Measured measured = opened.sampling->end(from, to);
  EXPECT_EQ(measured.samples.size(), 9U);
  EXPECT_THAT(measured.notes, ElementsAre(HasSubstr("cuptiPmSamplingStop gave")));
}

TEST_F(CuptiPmFaults, SamplesWithoutTimesOrValues) {
  const OpenedPmSampling opened = open();
  pm.faults.no_times = true;
  EXPECT_THAT(window(*opened.sampling).notes,
              ElementsAre("3 samples of the GPU's counters have no times and are left out.",
                          HasSubstr("No sample of the GPU's counters is in the window of 4.0 ms: "
                                    "0 were read")));
  pm.faults.no_times = false;
  pm.faults.value = std::nan("");
  const Measured measured = window(*opened.sampling);
  EXPECT_THAT(measured.samples, IsEmpty());
  EXPECT_THAT(measured.notes, ElementsAre(HasSubstr("9 values of the GPU's counters are not")));
}

TEST_F(CuptiPmFaults, AWindowThatIsTooLong) {
  settings.max_samples = 5;
  const OpenedPmSampling opened = open();
  const Measured measured = window(*opened.sampling, 8);
  EXPECT_EQ(measured.samples.size(), 15U);
  EXPECT_THAT(measured.notes,
              ElementsAre(HasSubstr("3 samples of the GPU's counters are missing")));
}

// Training waits for the end of a window, so end() must return.
TEST_F(CuptiPmFaults, ADecoderThatIsNeverDone) {
  settings.between_decodes = std::chrono::milliseconds(1);
  settings.max_samples = 100;
  const OpenedPmSampling opened = open();
  pm.faults.endless = true;
  const Measured measured = window(*opened.sampling, 200);
  EXPECT_THAT(measured.notes, Contains(HasSubstr("the window was too long")));
}

// If the samples' clock were not the assumed one, a note would say that none is in the window.
TEST_F(CuptiPmFaults, TimesOfAnotherClock) {
  const OpenedPmSampling opened = open();
  opened.sampling->begin();
  const std::uint64_t from = cupti.monotonic_ns();
  for (int i = 0; i < 4; ++i) pm.sample({50, 50, 50});
  const Measured measured = opened.sampling->end(from + 1'000'000'000, from + 1'040'000'000);
  EXPECT_THAT(measured.samples, IsEmpty());
  EXPECT_THAT(measured.notes,
              ElementsAre("No sample of the GPU's counters is in the window of 40.0 ms: 3 were "
                          "read."));
}

// The real driver and CUPTI: without a GPU, the exact refusal; with one, samples of some metrics.
TEST_F(CuptiPmFaults, ThisMachine) {
  const std::string why = testing::why_no_gpu_here();
  const OpenedPmSampling opened = open_pm_sampling(0);
  if (!why.empty()) {
    EXPECT_EQ(opened.sampling, nullptr);
    EXPECT_EQ(opened.why, "The GPU's counters are not sampled: " + why + ".");
    return;
  }
  if (!opened.sampling) GTEST_SKIP() << opened.why;
  EXPECT_NE(opened.sampling->what(), "");
  opened.sampling->begin();
  EXPECT_THAT(opened.sampling->end(0, 0).samples, IsEmpty());
}

}  // namespace
}  // namespace warpstep::profiler
