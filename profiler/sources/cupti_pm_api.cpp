#include "profiler/sources/cupti_pm_api.h"

#include <filesystem>

#include "profiler/sources/cupti_library.h"

namespace warpstep::profiler {
namespace {

void load(CuptiLibrary& cupti, CuptiPmApi& api) {
  cupti.get("cuptiProfilerInitialize", api.initialize);
  cupti.get("cuptiProfilerDeInitialize", api.deinitialize);
  cupti.get("cuptiProfilerDeviceSupported", api.device_supported);
  cupti.get("cuptiDeviceGetChipName", api.chip_name);
  cupti.get("cuptiProfilerHostInitialize", api.host_initialize);
  cupti.get("cuptiProfilerHostDeinitialize", api.host_deinitialize);
  cupti.get("cuptiProfilerHostGetMetricProperties", api.metric_properties);
  cupti.get("cuptiProfilerHostConfigAddMetrics", api.add_metrics);
  cupti.get("cuptiProfilerHostGetConfigImageSize", api.config_image_size);
  cupti.get("cuptiProfilerHostGetConfigImage", api.config_image);
  cupti.get("cuptiProfilerHostGetNumOfPasses", api.passes);
  cupti.get("cuptiProfilerHostEvaluateToGpuValues", api.evaluate);
  cupti.get("cuptiPmSamplingGetCounterAvailability", api.counter_availability);
  cupti.get("cuptiPmSamplingEnable", api.enable);
  cupti.get("cuptiPmSamplingDisable", api.disable);
  cupti.get("cuptiPmSamplingSetConfig", api.set_config);
  cupti.get("cuptiPmSamplingStart", api.start);
  cupti.get("cuptiPmSamplingStop", api.stop);
  cupti.get("cuptiPmSamplingGetCounterDataSize", api.counter_data_size);
  cupti.get("cuptiPmSamplingCounterDataImageInitialize", api.initialize_counter_data);
  cupti.get("cuptiPmSamplingDecodeData", api.decode);
  cupti.get("cuptiPmSamplingGetCounterDataInfo", api.counter_data_info);
  cupti.get("cuptiPmSamplingCounterDataGetSampleInfo", api.sample_info);
}

// CUPTI loads these by name, which finds them beside it only where the system's loader knows that
// folder: loaded before, they are found.
std::string load_companion(const std::string& name, const void* function_of_cupti) {
  std::vector<std::string> names{name};
  Dl_info place{};
  if (function_of_cupti && ::dladdr(function_of_cupti, &place) != 0 && place.dli_fname)
    names.insert(names.begin(), std::filesystem::path(place.dli_fname).replace_filename(name));
  return CuptiLibrary(names).why();
}

}  // namespace

CuptiPmApi load_cupti_pm_api() {
  CuptiPmApi api;
  CuptiLibrary cupti(cupti_paths());
  load(cupti, api);
  api.why = cupti.why();
  for (const char* name : {"libnvperf_host.so", "libnvperf_target.so"})
    if (api.why.empty())
      api.why = load_companion(name, reinterpret_cast<const void*>(api.initialize));
  return api;
}

}  // namespace warpstep::profiler
