#include "profiler/sources/cupti_pm_host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {
namespace {

void load_pm(CuptiLibrary& cupti, CuptiPmApi& api) {
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

// CUPTI loads these libraries by name, which finds them in its own folder only if the dynamic
// loader searches there. Libraries that are already loaded are always found.
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
  load_pm(cupti, api);
  api.why = cupti.why();
  for (const char* name : {"libnvperf_host.so", "libnvperf_target.so"})
    if (api.why.empty())
      api.why = load_companion(name, reinterpret_cast<const void*>(api.initialize));
  return api;
}

// Only the tensor pipe's "realtime" counters fit into one pass with the others (from GA100 on,
// according to CUPTI 13.0); those named v2 replace them on AD10x.
const std::vector<PmMetric>& pm_metrics() {
  static const std::vector<PmMetric> metrics{
      {"SM active %", {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"}},
      {"tensor pipe %",
       {"sm__pipe_tensor_cycles_active_realtime_v2.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"}},
      {"DRAM %", {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"}}};
  return metrics;
}

PmHost::PmHost(const CuptiApi& cupti, const CuptiPmApi& pm, std::string chip,
               std::vector<std::uint8_t> availability)
    : cupti_(cupti), pm_(pm), chip_(std::move(chip)), availability_(std::move(availability)) {
  try {
    for (const PmMetric& metric : pm_metrics()) {
      Fit best = Fit::absent;
      for (const char* name : metric.names) {
        std::vector<const char*> names = names_;
        names.push_back(name);
        const Fit fit = try_metrics(std::move(names));
        if (fit == Fit::passes) best = fit;
        if (fit != Fit::fits) continue;
        best = fit;
        names_.push_back(name);
        shown_.emplace_back(metric.shown);
        break;
      }
      if (best == Fit::absent)
        lacking_.push_back(fmt::format("{}: {} has no such counters", metric.shown, chip_));
      if (best == Fit::passes)
        lacking_.push_back(
            fmt::format("{}: {} cannot count it in one pass with the others", metric.shown, chip_));
    }
    if (names_.empty())
      throw PmFailure(fmt::format("the chip {} has none of the requested counters", chip_));
    try_metrics(names_);  // the last try may have included more
  } catch (...) {
    release();
    throw;
  }
}

PmHost::~PmHost() {
  release();
}

void PmHost::release() {
  if (!object_) return;
  auto p = sized<CUpti_Profiler_Host_Deinitialize_Params>(
      CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
  p.pHostObject = std::exchange(object_, nullptr);
  pm_.host_deinitialize(&p);
}

// Creates a new object for each try: metrics cannot be removed from one.
PmHost::Fit PmHost::try_metrics(std::vector<const char*> names) {
  release();
  auto made = sized<CUpti_Profiler_Host_Initialize_Params>(  // 13.0 knows no later field
      CUPTI_PROFILER_STRUCT_SIZE(CUpti_Profiler_Host_Initialize_Params, pHostObject));
  made.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  made.pChipName = chip_.c_str();
  made.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
  if (const CUptiResult result = pm_.host_initialize(&made); result != CUPTI_SUCCESS)
    throw PmFailure(fmt::format("the chip {} is not supported: {}", chip_,
                                explain_failure(cupti_, "cuptiProfilerHostInitialize", result)));
  object_ = made.pHostObject;
  auto known = sized<CUpti_Profiler_Host_GetMetricProperties_Params>(
      CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE);
  known.pHostObject = object_;
  known.pMetricName = names.back();
  if (pm_.metric_properties(&known) != CUPTI_SUCCESS) return Fit::absent;
  auto added = sized<CUpti_Profiler_Host_ConfigAddMetrics_Params>(
      CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  added.pHostObject = object_;
  added.ppMetricNames = names.data();
  added.numMetrics = names.size();
  if (pm_.add_metrics(&added) != CUPTI_SUCCESS) return Fit::absent;

  const auto check = [&](const char* function, CUptiResult result) {
    if (result != CUPTI_SUCCESS) throw PmFailure(explain_failure(cupti_, function, result));
  };
  auto size = sized<CUpti_Profiler_Host_GetConfigImageSize_Params>(
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  size.pHostObject = object_;
  check("cuptiProfilerHostGetConfigImageSize", pm_.config_image_size(&size));
  config_image_.assign(size.configImageSize, 0);
  auto image = sized<CUpti_Profiler_Host_GetConfigImage_Params>(
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  image.pHostObject = object_;
  image.configImageSize = config_image_.size();
  image.pConfigImage = config_image_.data();
  check("cuptiProfilerHostGetConfigImage", pm_.config_image(&image));
  auto passes = sized<CUpti_Profiler_Host_GetNumOfPasses_Params>(
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  passes.configImageSize = config_image_.size();
  passes.pConfigImage = config_image_.data();
  check("cuptiProfilerHostGetNumOfPasses", pm_.passes(&passes));
  return passes.numOfPasses <= 1 ? Fit::fits : Fit::passes;
}

CUptiResult PmHost::evaluate(std::span<const std::uint8_t> counter_data, std::size_t sample,
                             std::span<double> values) {
  auto p = sized<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(
      CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  p.pHostObject = object_;
  p.pCounterDataImage = counter_data.data();
  p.counterDataImageSize = counter_data.size();
  p.rangeIndex = sample;
  p.ppMetricNames = names_.data();
  p.numMetrics = names_.size();
  p.pMetricValues = values.data();
  return pm_.evaluate(&p);
}

}  // namespace warpstep::profiler
