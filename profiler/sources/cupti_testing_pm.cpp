#include "profiler/sources/cupti_testing_pm.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace warpstep::profiler::testing {
namespace {

FakePm* current_pm = nullptr;

struct HostObject {
  std::vector<std::string> names;
};
HostObject* host(CUpti_Profiler_Host_Object* object) {
  return reinterpret_cast<HostObject*>(object);
}

// "sm__cycles_active.avg..." -> "sm__cycles_active"
std::string first_word(const std::string& metric) {
  return metric.substr(0, metric.find('.'));
}

// A counter data image: how many samples fit, how many it has, and these.
struct Header {
  std::uint64_t room = 0, completed = 0;
};

}  // namespace

FakePm::FakePm(FakeCupti& cupti) : cupti_(cupti) {
  current_pm = this;
}
FakePm::~FakePm() {
  current_pm = nullptr;
}

CUptiResult FakePm::result_of(const char* function) {
  const auto at = faults.results.find(function);
  return at == faults.results.end() ? CUPTI_SUCCESS : at->second;
}

CUptiResult FakePm::device_call(const char* function) {
  calls.emplace_back(function);
  if (!config_image_.empty() &&
      !std::equal(config_image_.begin(), config_image_.end(), config.pConfig))
    config_image_kept = false;
  return result_of(function);
}

std::uint64_t FakePm::now() const {
  std::uint64_t time = 0;
  cupti_.api().get_timestamp(&time);
  return time;
}

void FakePm::sample(const PmValues& values, std::uint64_t lasts_ns) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t begin = now();
  cupti_.pass(lasts_ns);
  if (!started_) return;
  if (buffer_.size() >= faults.hardware_samples)
    overflowed_ = true;
  else
    buffer_.push_back({begin, now(), values});
}

std::size_t FakePm::waiting() {
  const std::lock_guard lock(mutex_);
  return buffer_.size();
}

struct FakePm::Functions {
  static CUptiResult initialize(CUpti_Profiler_Initialize_Params*) {
    return current_pm->device_call("initialize");
  }
  static CUptiResult deinitialize(CUpti_Profiler_DeInitialize_Params*) {
    return current_pm->device_call("deinitialize");
  }
  static CUptiResult device_supported(CUpti_Profiler_DeviceSupported_Params* p) {
    if (p->api != CUPTI_PROFILER_PM_SAMPLING) return CUPTI_ERROR_INVALID_PARAMETER;
    p->architecture = p->sli = p->confidentialCompute = p->cmp = p->wsl =
        CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    p->isSupported = p->vGpu = current_pm->faults.v_gpu;
    return current_pm->result_of("device_supported");
  }
  static CUptiResult chip_name(CUpti_Device_GetChipName_Params* p) {
    p->pChipName = current_pm->chip.c_str();
    return current_pm->result_of("chip_name");
  }

  static CUptiResult host_initialize(CUpti_Profiler_Host_Initialize_Params* p) {
    if (p->profilerType != CUPTI_PROFILER_TYPE_PM_SAMPLING || current_pm->chip != p->pChipName)
      return CUPTI_ERROR_INVALID_PARAMETER;
    if (const CUptiResult result = current_pm->result_of("host_initialize")) return result;
    p->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(new HostObject);
    ++current_pm->hosts;
    return CUPTI_SUCCESS;
  }
  static CUptiResult host_deinitialize(CUpti_Profiler_Host_Deinitialize_Params* p) {
    delete host(p->pHostObject);
    --current_pm->hosts;
    return CUPTI_SUCCESS;
  }
  static CUptiResult metric_properties(CUpti_Profiler_Host_GetMetricProperties_Params* p) {
    return current_pm->faults.absent.contains(first_word(p->pMetricName))
               ? CUPTI_ERROR_INVALID_METRIC_NAME
               : CUPTI_SUCCESS;
  }
  static CUptiResult add_metrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* p) {
    host(p->pHostObject)->names.assign(p->ppMetricNames, p->ppMetricNames + p->numMetrics);
    return current_pm->result_of("add_metrics");
  }
  static CUptiResult config_image_size(CUpti_Profiler_Host_GetConfigImageSize_Params* p) {
    p->configImageSize = 1 + host(p->pHostObject)->names.size();
    return current_pm->result_of("config_image_size");
  }
  static CUptiResult config_image(CUpti_Profiler_Host_GetConfigImage_Params* p) {
    const auto& names = host(p->pHostObject)->names;
    if (p->configImageSize != 1 + names.size()) return CUPTI_ERROR_INVALID_PARAMETER;
    const bool more = names.size() > 1 && std::ranges::any_of(names, [](const std::string& name) {
                        return current_pm->faults.in_more_passes.contains(first_word(name));
                      });
    p->pConfigImage[0] = more ? 2 : 1;
    return current_pm->result_of("config_image");
  }
  static CUptiResult passes(CUpti_Profiler_Host_GetNumOfPasses_Params* p) {
    p->numOfPasses = p->pConfigImage[0];
    return current_pm->result_of("passes");
  }
  static CUptiResult evaluate(CUpti_Profiler_Host_EvaluateToGpuValues_Params* p) {
    Raw raw;
    std::memcpy(&raw, p->pCounterDataImage + sizeof(Header) + p->rangeIndex * sizeof raw,
                sizeof raw);
    for (std::size_t i = 0; i < p->numMetrics; ++i) {
      const std::string name = p->ppMetricNames[i];
      if (host(p->pHostObject)->names.at(i) != name) return CUPTI_ERROR_INVALID_METRIC_NAME;
      p->pMetricValues[i] = name.find("dram") != std::string::npos     ? raw.values.dram
                            : name.find("tensor") != std::string::npos ? raw.values.tensor
                                                                       : raw.values.sm;
      if (current_pm->faults.value != -1) p->pMetricValues[i] = current_pm->faults.value;
    }
    return current_pm->result_of("evaluate");
  }

  static CUptiResult counter_availability(CUpti_PmSampling_GetCounterAvailability_Params* p) {
    if (p->pCounterAvailabilityImage)
      std::memset(p->pCounterAvailabilityImage, 1, p->counterAvailabilityImageSize);
    p->counterAvailabilityImageSize = 64;
    return current_pm->result_of("counter_availability");
  }
  static CUptiResult enable(CUpti_PmSampling_Enable_Params* p) {
    p->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(current_pm);
    return current_pm->device_call("enable");
  }
  static CUptiResult disable(CUpti_PmSampling_Disable_Params*) {
    const CUptiResult result = current_pm->device_call("disable");
    current_pm->config_image_.clear();
    return result;
  }
  static CUptiResult set_config(CUpti_PmSampling_SetConfig_Params* p) {
    current_pm->config = *p;
    current_pm->config_image_.assign(p->pConfig, p->pConfig + p->configSize);
    return current_pm->device_call("set_config");
  }
  static CUptiResult start(CUpti_PmSampling_Start_Params*) {
    const std::lock_guard lock(current_pm->mutex_);
    const CUptiResult result = current_pm->device_call("start");
    current_pm->started_ = result == CUPTI_SUCCESS;
    return result;
  }
  static CUptiResult stop(CUpti_PmSampling_Stop_Params*) {
    const std::lock_guard lock(current_pm->mutex_);
    current_pm->started_ = false;
    return current_pm->device_call("stop");
  }

  static CUptiResult counter_data_size(CUpti_PmSampling_GetCounterDataSize_Params* p) {
    p->counterDataSize = sizeof(Header) + p->maxSamples * sizeof(Raw);
    return current_pm->result_of("counter_data_size");
  }
  static CUptiResult initialize_counter_data(
      CUpti_PmSampling_CounterDataImage_Initialize_Params* p) {
    const Header header{(p->counterDataSize - sizeof(Header)) / sizeof(Raw), 0};
    std::memcpy(p->pCounterData, &header, sizeof header);
    return current_pm->result_of("initialize_counter_data");
  }
  static CUptiResult decode(CUpti_PmSampling_DecodeData_Params* p) {
    const std::lock_guard lock(current_pm->mutex_);
    if (const CUptiResult result = current_pm->result_of("decode")) return result;
    Header header;
    std::memcpy(&header, p->pCounterDataImage, sizeof header);
    auto& buffer = current_pm->buffer_;
    if (current_pm->faults.endless)
      buffer.push_back({current_pm->now(), current_pm->now() + 1, {}});
    for (; header.completed < header.room && !buffer.empty(); ++header.completed) {
      std::memcpy(p->pCounterDataImage + sizeof header + header.completed * sizeof(Raw),
                  &buffer.front(), sizeof(Raw));
      buffer.pop_front();
    }
    std::memcpy(p->pCounterDataImage, &header, sizeof header);
    p->decodeStopReason = buffer.empty() ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS
                                         : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
    if (current_pm->faults.endless)
      p->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER;
    if (!std::exchange(current_pm->overflowed_, false)) return CUPTI_SUCCESS;
    if (current_pm->faults.overflow_is_an_error) return CUPTI_ERROR_OUT_OF_MEMORY;
    p->overflow = 1;
    return CUPTI_SUCCESS;
  }
  static CUptiResult counter_data_info(CUpti_PmSampling_GetCounterDataInfo_Params* p) {
    Header header;
    std::memcpy(&header, p->pCounterDataImage, sizeof header);
    p->numTotalSamples = header.room;
    p->numPopulatedSamples = p->numCompletedSamples = header.completed;
    return current_pm->result_of("counter_data_info");
  }
  static CUptiResult sample_info(CUpti_PmSampling_CounterData_GetSampleInfo_Params* p) {
    Raw raw;
    std::memcpy(&raw, p->pCounterDataImage + sizeof(Header) + p->sampleIndex * sizeof raw,
                sizeof raw);
    p->startTimestamp = current_pm->faults.no_times ? 0 : raw.begin_ns;
    p->endTimestamp = current_pm->faults.no_times ? 0 : raw.end_ns;
    return current_pm->result_of("sample_info");
  }
};

CuptiPmApi FakePm::api() const {
  using F = Functions;
  CuptiPmApi api;
  api.why = faults.missing;
  if (!api.why.empty()) return api;
  api.initialize = &F::initialize;
  api.deinitialize = &F::deinitialize;
  api.device_supported = &F::device_supported;
  api.chip_name = &F::chip_name;
  api.host_initialize = &F::host_initialize;
  api.host_deinitialize = &F::host_deinitialize;
  api.metric_properties = &F::metric_properties;
  api.add_metrics = &F::add_metrics;
  api.config_image_size = &F::config_image_size;
  api.config_image = &F::config_image;
  api.passes = &F::passes;
  api.evaluate = &F::evaluate;
  api.counter_availability = &F::counter_availability;
  api.enable = &F::enable;
  api.disable = &F::disable;
  api.set_config = &F::set_config;
  api.start = &F::start;
  api.stop = &F::stop;
  api.counter_data_size = &F::counter_data_size;
  api.initialize_counter_data = &F::initialize_counter_data;
  api.decode = &F::decode;
  api.counter_data_info = &F::counter_data_info;
  api.sample_info = &F::sample_info;
  return api;
}

}  // namespace warpstep::profiler::testing
