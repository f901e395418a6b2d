// When GPU activities cannot be recorded, a sentence says why.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/record.h"
#include "profiler/sources/cupti_testing.h"
#include "profiler/sources/cupti_trace.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::FakeCupti;
using ::testing::HasSubstr;

const record::Name open_conv("conv1", Kind::call);

constexpr TraceSettings open_settings{.between_readings = std::chrono::hours(1)};

OpenedTrace open_fake(const FakeCupti& cupti, const TraceSettings& how = open_settings) {
  return open_trace(cupti.api(), {}, how);
}

std::string why_not(const FakeCupti& cupti) {
  const OpenedTrace opened = open_fake(cupti);
  EXPECT_EQ(opened.trace, nullptr);
  EXPECT_TRUE(opened.why.starts_with("The GPU's activities are not recorded: ")) << opened.why;
  EXPECT_TRUE(opened.why.ends_with('.')) << opened.why;
  EXPECT_EQ(cupti.subscriptions, 0);
  const record::Span span(open_conv, 1);  // no listener is left
  EXPECT_TRUE(testing::pushed_externals().empty());
  return opened.why;
}

TEST(CuptiOpen, NoDriver) {
  FakeCupti cupti;
  cupti.faults.no_driver = true;
  EXPECT_THAT(why_not(cupti), HasSubstr("no NVIDIA driver (libcuda.so.1: cannot open"));
}

TEST(CuptiOpen, NoDevice) {
  FakeCupti cupti;
  cupti.faults.no_device = true;
  EXPECT_THAT(why_not(cupti), HasSubstr("finds no GPU: cuInit gave 100"));
}

TEST(CuptiOpen, NoLibrary) {
  FakeCupti cupti;
  cupti.faults.no_library = true;
  EXPECT_THAT(why_not(cupti), AllOf(HasSubstr("libcupti.so.13: cannot open"),
                                    HasSubstr("install the package cuda-cupti-13-0")));
}

TEST(CuptiOpen, AnotherVersion) {
  for (const std::uint32_t version : {0U, 24U, 129999U, 130600U, 140000U}) {
    FakeCupti cupti;
    cupti.faults.version = version;
    EXPECT_THAT(why_not(cupti), AllOf(HasSubstr(fmt::format("has version {},", version)),
                                      HasSubstr("130000 to 130599")));
  }
  for (const std::uint32_t version : {130000U, 130101U, 130202U, 130500U}) {
    FakeCupti cupti;
    cupti.faults.version = version;
    EXPECT_EQ(open_fake(cupti).why, "");
  }
}

TEST(CuptiOpen, RecordsThatAreTooShort) {
  for (const std::uint32_t kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE}) {
    FakeCupti cupti;
    cupti.faults.longer[kind] = -8;
    EXPECT_THAT(why_not(cupti), HasSubstr(fmt::format("have {} bytes, expected at least {}",
                                                      oldest_record_bytes()[kind] - 8,
                                                      oldest_record_bytes()[kind])));
  }
}

TEST(CuptiOpen, HeldByAnotherTool) {
  FakeCupti cupti;
  cupti.faults.subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  cupti.faults.holder = "Nsight Systems";
  EXPECT_THAT(why_not(cupti), HasSubstr("CUPTI is held by Nsight Systems"));
  cupti.faults.holder = "";
  EXPECT_THAT(why_not(cupti), HasSubstr("CUPTI is held by another tool"));
  cupti.faults.holder = std::string(500, 'x');
  EXPECT_THAT(why_not(cupti), HasSubstr("CUPTI is held by xxx"));
}

TEST(CuptiOpen, NoPermission) {
  FakeCupti cupti;
  cupti.faults.subscribe = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  EXPECT_THAT(why_not(cupti), AllOf(HasSubstr("cuptiSubscribe_v2 gave"), HasSubstr("(35)"),
                                    HasSubstr("NVreg_RestrictProfilingToAdminUsers=0")));
  cupti.faults.subscribe = CUPTI_ERROR_UNKNOWN;
  EXPECT_THAT(why_not(cupti), HasSubstr("CUPTI_ERROR_UNKNOWN (999)"));
}

TEST(CuptiOpen, NoBuffersCanBeRegistered) {
  FakeCupti cupti;
  cupti.faults.register_callbacks = CUPTI_ERROR_INVALID_PARAMETER;
  EXPECT_THAT(why_not(cupti), HasSubstr("cuptiActivityRegisterCallbacks gave"));
  cupti.faults.register_callbacks = CUPTI_SUCCESS;
  EXPECT_NE(open_fake(cupti).trace, nullptr);
}

// The real driver and CUPTI: without a GPU, the exact refusal; with one, a trace that opens and
// ends.
TEST(CuptiOpen, ThisMachine) {
  const std::string why = testing::why_no_gpu_here();
  const OpenedTrace opened = open_device_trace();
  EXPECT_EQ(query_devices().empty(), !why.empty());
  if (!why.empty()) {
    EXPECT_EQ(opened.trace, nullptr);
    EXPECT_EQ(opened.why, "The GPU's activities are not recorded: " + why + ".");
    return;
  }
  // CUPTI may be missing beside a driver; whatever else it refuses is a failure.
  if (opened.why.find("libcupti") != std::string::npos) GTEST_SKIP() << opened.why;
  ASSERT_NE(opened.trace, nullptr) << opened.why;
  opened.trace->begin();
  EXPECT_GE(opened.trace->end().clocks.size(), 2U);
}

// Without a driver CUPTI's functions return success and 0, so the driver is checked first.
TEST(CuptiOpen, TheLibraryWithoutADriver) {
  CuptiApi api = load_cupti_api();
  if (const std::string why = testing::why_cupti_cannot_be_asked(api); !why.empty())
    GTEST_SKIP() << why;
  if (api.init && api.init(0) == CUDA_SUCCESS) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(open_trace(api, {}).why, HasSubstr("driver"));
  const FakeCupti driver;  // says that there is one
  api.init = driver.api().init;
  api.device_count = driver.api().device_count;
  const OpenedTrace opened = open_trace(api, {});
  EXPECT_EQ(opened.trace, nullptr);
  EXPECT_THAT(opened.why, HasSubstr("cuptiSubscribe_v2 gave CUPTI_ERROR_"));
}

}  // namespace
}  // namespace warpstep::profiler
