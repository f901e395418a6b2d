#include "profiler/export/cpu_as_device.h"

#include <gmock/gmock.h>

#include "engine/core/error.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_events.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;

constexpr KinetoOptions as_device{.cpu_as_device = true};

TEST(CpuAsDevice, EachCallIsAKernelWithALaunch) {
  const Session session = host_session(2).build();
  const auto events = events_of(session, as_device);
  const auto kernels = of_category(events, "kernel"), ops = of_category(events, "cpu_op"),
             launches = of_category(events, "cuda_runtime");
  EXPECT_THAT(names_of(kernels), ElementsAre("conv1.forward", "update", "conv1.forward", "update"));
  ASSERT_THAT(launches, SizeIs(4));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Json &kernel = kernels[i], &launch = launches[i];
    EXPECT_EQ(kernel["pid"], 0);
    EXPECT_EQ(kernel["tid"], 7);
    EXPECT_EQ(kernel["args"]["correlation"], launch["args"]["correlation"]);
    EXPECT_EQ(kernel["args"]["External id"], launch["args"]["External id"]);
    EXPECT_EQ(ns(launch["dur"]), 1);
    EXPECT_EQ(ns(kernel["ts"]), ns(launch["ts"]) + 1);
    EXPECT_EQ(ns(kernel["dur"]), 299'999) << "with its launch the call's 300 us";
  }
  EXPECT_THAT(names_of(ops), SizeIs(6)) << "the calls and the waits stay what they are";
  EXPECT_THAT(check_kineto(kineto_json(session, as_device)), IsEmpty());
}

TEST(CpuAsDevice, TheFileSaysThatTheDeviceIsTheCpu) {
  SessionBuilder builder = host_session(1);
  builder.raw().stamp["cpu"] = {{"model", "Some CPU"}};
  const Json trace = Json::parse(kineto_json(builder.build(), as_device));
  EXPECT_EQ(trace["deviceProperties"][0]["name"], "CPU shown as a device: Some CPU");
  EXPECT_THAT(trace["warpstep"]["cpu_as_device"].get<std::string>(),
              HasSubstr("device 0 is the CPU"));
  std::vector<std::string> labels;
  for (const Json& event : trace["traceEvents"])
    if (event["name"] == "process_labels") labels.push_back(event["args"]["labels"]);
  EXPECT_THAT(labels, ElementsAre("CPU shown as device 0", "CPU"));
}

TEST(CpuAsDevice, CallsInsideOfCallsAreNoKernels) {
  SessionBuilder builder = host_session(1);
  builder.span(Kind::call, "inner", 1300, 1400, 0, 1);
  EXPECT_THAT(names_of(of_category(events_of(builder.build(), as_device), "kernel")),
              ElementsAre("conv1.forward", "update"));
}

TEST(CpuAsDevice, RefusesARunOnAGpu) {
  EXPECT_THROW(kineto_json(device_session(1).build(), as_device), UsageError);
}

}  // namespace
}  // namespace warpstep::profiler
