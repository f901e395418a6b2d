// How the GPU's counters are taken hold of, and why they may not be had.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "profiler/sources/cupti_pm_sampler.h"

namespace warpstep::profiler {
namespace {

std::atomic<bool> is_open{false};

OpenedPmSampling refuse(const std::string& why) {
  return {nullptr, "The GPU's counters are not sampled: " + why + "."};
}

std::string join(const std::vector<std::string>& parts, const char* between) {
  return fmt::format("{}", fmt::join(parts, between));
}

std::string why_unsupported(const CUpti_Profiler_DeviceSupported_Params& p) {
  const auto lacks = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
           level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  if (!lacks(p.isSupported)) return {};
  if (lacks(p.architecture)) return "its architecture is too old";
  if (lacks(p.sli)) return "it is one of a pair (SLI)";
  if (lacks(p.vGpu)) return "it is a virtual GPU without profiling: its host must allow that";
  if (lacks(p.confidentialCompute)) return "it computes confidentially";
  if (lacks(p.cmp)) return "it is made for mining";
  if (lacks(p.wsl)) return "it runs under WSL";
  return "CUPTI does not say why";
}

}  // namespace

PmSampler::~PmSampler() {
  if (started_) end(0, 0);
  if (object_) {
    auto p = sized<CUpti_PmSampling_Disable_Params>(CUpti_PmSampling_Disable_Params_STRUCT_SIZE);
    p.pPmSamplingObject = object_;
    pm_.disable(&p);
  }
  host_.reset();
  // Once for each cuptiProfilerInitialize(): CUPTI does not count them.
  if (initialized_) {
    auto p =
        sized<CUpti_Profiler_DeInitialize_Params>(CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
    pm_.deinitialize(&p);
  }
  if (is_the_one_) is_open = false;
}

std::string PmSampler::what() const {
  return join(host_->shown(), ", ");
}

void PmSampler::check(const char* function, CUptiResult result, bool others_may_hold_it) const {
  if (result == CUPTI_SUCCESS) return;
  std::string why = explain_failure(cupti_, function, result);
  if (others_may_hold_it && (result == CUPTI_ERROR_INVALID_OPERATION ||
                             result == CUPTI_ERROR_HARDWARE_BUSY || result == CUPTI_ERROR_UNKNOWN))
    why +=
        ": another tool may hold the counters; stop it (dcgmi profile --pause for DCGM, or nsys, "
        "ncu) and run again";
  throw PmFailure(why);
}

// Enabled once, not for each window: that takes longer than a short warm-up. Whether the clocks are
// locked from here on or only while a window is sampled was not proved on a GPU, so the report says
// it of the whole run.
void PmSampler::open() {
  if (is_open.exchange(true)) throw PmFailure("they are already, and only once in a process");
  is_the_one_ = true;
  auto p = sized<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
  check("cuptiProfilerInitialize", pm_.initialize(&p));
  initialized_ = true;
  check_device();
  chip_ = chip_name();
  host_.emplace(cupti_, pm_, chip_, availability());
  enable();
  configure();
  make_counter_data();
}

void PmSampler::check_device() {
  CUdevice handle = 0;
  if (const CUresult result = cupti_.device_get(&handle, device_); result != CUDA_SUCCESS)
    throw PmFailure(fmt::format("the driver has no GPU {}: cuDeviceGet gave {}", device_,
                                static_cast<int>(result)));
  auto p = sized<CUpti_Profiler_DeviceSupported_Params>(
      CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE);
  p.cuDevice = handle;
  p.api = CUPTI_PROFILER_PM_SAMPLING;
  if (pm_.device_supported(&p) != CUPTI_SUCCESS) return;  // what comes fails if it is not
  if (const std::string why = why_unsupported(p); !why.empty())
    throw PmFailure(fmt::format("GPU {} does not support PM sampling: {}", device_, why));
}

std::string PmSampler::chip_name() {
  auto p = sized<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  p.deviceIndex = static_cast<std::size_t>(device_);
  check("cuptiDeviceGetChipName", pm_.chip_name(&p));
  return p.pChipName ? p.pChipName : "";
}

std::vector<std::uint8_t> PmSampler::availability() {
  auto p = sized<CUpti_PmSampling_GetCounterAvailability_Params>(
      CUpti_PmSampling_GetCounterAvailability_Params_STRUCT_SIZE);
  p.deviceIndex = static_cast<std::size_t>(device_);
  check("cuptiPmSamplingGetCounterAvailability", pm_.counter_availability(&p), true);
  std::vector<std::uint8_t> image(p.counterAvailabilityImageSize);
  p.pCounterAvailabilityImage = image.data();
  check("cuptiPmSamplingGetCounterAvailability", pm_.counter_availability(&p), true);
  return image;
}

void PmSampler::enable() {
  auto p = sized<CUpti_PmSampling_Enable_Params>(CUpti_PmSampling_Enable_Params_STRUCT_SIZE);
  p.deviceIndex = static_cast<std::size_t>(device_);
  check("cuptiPmSamplingEnable", pm_.enable(&p), true);
  object_ = p.pPmSamplingObject;
}

void PmSampler::configure() {
  // By CUPTI's guide Turing and GA100 know no trigger by time: there a million cycles of the
  // system's clock come near a millisecond.
  const bool by_cycles = chip_ == "GA100" || chip_.starts_with("TU");
  auto p = sized<CUpti_PmSampling_SetConfig_Params>(CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  p.configSize = host_->config_image().size();
  p.pConfig = host_->config_image().data();
  p.hardwareBufferSize = settings_.hardware_buffer_bytes;
  p.samplingInterval = by_cycles ? settings_.interval_cycles : settings_.interval_ns;
  p.triggerMode = by_cycles ? CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
                            : CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  p.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  check("cuptiPmSamplingSetConfig", pm_.set_config(&p), true);
}

void PmSampler::make_counter_data() {
  auto p = sized<CUpti_PmSampling_GetCounterDataSize_Params>(
      CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  p.pMetricNames = host_->names().data();
  p.numMetrics = host_->names().size();
  p.maxSamples = settings_.samples_at_once;
  check("cuptiPmSamplingGetCounterDataSize", pm_.counter_data_size(&p));
  counter_data_.assign(p.counterDataSize, 0);
}

OpenedPmSampling open_pm_sampling(const CuptiApi& cupti, const CuptiPmApi& pm, int device,
                                  const PmSettings& settings) {
  if (const std::string why = why_no_device(cupti); !why.empty()) return refuse(why);
  if (const std::string why = why_no_library(cupti); !why.empty()) return refuse(why);
  if (!pm.why.empty())
    return refuse(
        fmt::format("CUPTI's profiling functions cannot be loaded ({}); install the "
                    "package cuda-cupti-13-0 in full",
                    pm.why));
  auto sampler = std::make_unique<PmSampler>(cupti, pm, device, settings);
  try {
    sampler->open();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
  std::string why;
  if (const auto& lacking = sampler->host().lacking(); !lacking.empty())
    why = "The GPU's counters are sampled in part: " + join(lacking, "; ") + ".";
  return {std::move(sampler), why};
}

OpenedPmSampling open_pm_sampling(int device) {
  try {
    return open_pm_sampling(load_cupti_api(), load_cupti_pm_api(), device);
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

}  // namespace warpstep::profiler
