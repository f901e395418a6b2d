// The second half of the parser: what only the whole window's records tell.
#include <cupti.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>

#include "profiler/sources/cupti_parse.h"

namespace warpstep::profiler {
namespace {

constexpr std::array<std::uint32_t, 25> noisy_calls{
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetErrorString_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDeviceCount_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreate_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetPriority_v5050,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v10010,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v2_v11030,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v12030,
    CUPTI_RUNTIME_TRACE_CBID_cudaThreadExchangeStreamCaptureMode_v10010,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetFuncBySymbol_v11000,
    CUPTI_RUNTIME_TRACE_CBID___cudaPushCallConfiguration_v13000,
    CUPTI_RUNTIME_TRACE_CBID___cudaPopCallConfiguration_v13000,
};

bool is_before(const Activity& a, const Activity& b) {
  const auto key = [](const Activity& activity) {
    return std::tuple(activity.start_ns, activity.end_ns, activity.what, activity.correlation,
                      activity.graph_node, activity.stream);
  };
  return key(a) < key(b);
}

// The first of each correlation.
void keep_one_call_each(std::vector<Activity>& activities) {
  std::unordered_set<std::uint32_t> seen;
  std::erase_if(activities, [&](const Activity& activity) {
    return activity.what == What::api && activity.correlation != 0 &&
           !seen.insert(activity.correlation).second;
  });
}

}  // namespace

std::span<const std::uint32_t> noisy_runtime_calls() {
  return noisy_calls;
}

Parsed Parser::finish(const std::unordered_map<std::uint64_t, std::uint64_t>& call_of) {
  std::vector<Activity>& activities = parsed_.activities;
  // Behind the runtime's own: the driver's counts only where the runtime has none.
  activities.insert(activities.end(), driver_calls_.begin(), driver_calls_.end());
  keep_one_call_each(activities);

  std::unordered_map<std::uint32_t, std::uint32_t> threads;  // by correlation
  for (const Activity& activity : activities)
    if (activity.what == What::api) threads.emplace(activity.correlation, activity.stream);
  for (Activity& activity : activities) {
    if (activity.what == What::sync && threads.contains(activity.correlation))
      activity.stream = threads[activity.correlation];
    // All of a graph have its launch's correlation; which call one came from, its node tells.
    const auto call = call_of.find(activity.graph_node);
    if (activity.graph_node != 0 && call != call_of.end()) {
      activity.external = static_cast<std::uint32_t>(call->second + 1);
    } else if (activity.what != What::overhead) {
      const auto external = externals_.find(activity.correlation);
      if (external != externals_.end()) activity.external = external->second;
    }
  }
  std::stable_sort(activities.begin(), activities.end(), is_before);
  driver_calls_.clear();
  externals_.clear();
  return std::exchange(parsed_, {});
}

}  // namespace warpstep::profiler
