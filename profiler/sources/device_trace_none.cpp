// For builds without CUPTI's headers, which can neither trace a GPU nor sample its counters.
#include "engine/core/error.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {
namespace {

constexpr const char* reason =
    "this program was built without CUPTI 13.0's headers; install cuda-cupti-dev-13-0 and build it "
    "again";

}  // namespace

OpenedTrace open_device_trace(const DeviceTraceOptions&) {
  return {nullptr, std::string("The GPU's activities are not recorded: ") + reason + "."};
}

Traced replay_device_trace(const std::filesystem::path& dump) {
  fail<DataError>("{}: cannot be read: {}", dump.string(), reason);
}

std::vector<Device> query_devices() {
  return {};
}

OpenedPmSampling open_pm_sampling(int) {
  return {nullptr, std::string("The GPU's counters are not sampled: ") + reason + "."};
}

}  // namespace warpstep::profiler
