// The host's side of PM sampling: which metrics a chip can count in one pass, and the values of its
// counters. Needs no device, so the real library answers for any chip on any machine.
#pragma once

#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

// The functions of CUPTI that PM sampling calls, in a separate table from CuptiApi: a libcupti
// without them still traces activities, and tests supply their own table.
struct CuptiPmApi {
  decltype(&::cuptiProfilerInitialize) initialize = nullptr;
  decltype(&::cuptiProfilerDeInitialize) deinitialize = nullptr;
  decltype(&::cuptiProfilerDeviceSupported) device_supported = nullptr;
  decltype(&::cuptiDeviceGetChipName) chip_name = nullptr;

  // The host's side: a chip's metrics, the scheduling and evaluation of counters.
  decltype(&::cuptiProfilerHostInitialize) host_initialize = nullptr;
  decltype(&::cuptiProfilerHostDeinitialize) host_deinitialize = nullptr;
  decltype(&::cuptiProfilerHostGetMetricProperties) metric_properties = nullptr;
  decltype(&::cuptiProfilerHostConfigAddMetrics) add_metrics = nullptr;
  decltype(&::cuptiProfilerHostGetConfigImageSize) config_image_size = nullptr;
  decltype(&::cuptiProfilerHostGetConfigImage) config_image = nullptr;
  decltype(&::cuptiProfilerHostGetNumOfPasses) passes = nullptr;
  decltype(&::cuptiProfilerHostEvaluateToGpuValues) evaluate = nullptr;

  // The device's side.
  decltype(&::cuptiPmSamplingGetCounterAvailability) counter_availability = nullptr;
  decltype(&::cuptiPmSamplingEnable) enable = nullptr;
  decltype(&::cuptiPmSamplingDisable) disable = nullptr;
  decltype(&::cuptiPmSamplingSetConfig) set_config = nullptr;
  decltype(&::cuptiPmSamplingStart) start = nullptr;
  decltype(&::cuptiPmSamplingStop) stop = nullptr;
  decltype(&::cuptiPmSamplingGetCounterDataSize) counter_data_size = nullptr;
  decltype(&::cuptiPmSamplingCounterDataImageInitialize) initialize_counter_data = nullptr;
  decltype(&::cuptiPmSamplingDecodeData) decode = nullptr;
  decltype(&::cuptiPmSamplingGetCounterDataInfo) counter_data_info = nullptr;
  decltype(&::cuptiPmSamplingCounterDataGetSampleInfo) sample_info = nullptr;

  std::string why;  // what is missing; empty: nothing
};

// The functions of this machine's library.
CuptiPmApi load_cupti_pm_api();

// A structure of CUPTI's parameters: its size set, all else 0.
template <class Parameters>
Parameters sized(std::size_t bytes) {
  Parameters parameters{};
  parameters.structSize = bytes;
  return parameters;
}

// Why PM sampling stopped, for a note.
class PmFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PmMetric {
  const char* shown;               // "SM active %"
  std::vector<const char*> names;  // CUPTI's, best first: chips differ
};
const std::vector<PmMetric>& pm_metrics();

// CUPTI's host object for a chip, with its config image.
class PmHost {
 public:
  // Selects those of pm_metrics() that the chip counts in one pass, PM sampling's limit; earlier
  // ones have priority. `availability` is the device's counter availability image; without one all
  // of the chip's counters count as available. Throws PmFailure if no metric can be counted.
  PmHost(const CuptiApi& cupti, const CuptiPmApi& pm, std::string chip,
         std::vector<std::uint8_t> availability = {});
  ~PmHost();
  PmHost(const PmHost&) = delete;
  PmHost& operator=(const PmHost&) = delete;

  const std::vector<std::string>& shown() const { return shown_; }      // of the selected metrics
  std::vector<const char*>& names() { return names_; }                  // CUPTI's names of them
  const std::vector<std::string>& lacking() const { return lacking_; }  // one sentence each
  std::span<const std::uint8_t> config_image() const { return config_image_; }

  // Computes the metrics' values in a sample of a counter data image.
  CUptiResult evaluate(std::span<const std::uint8_t> counter_data, std::size_t sample,
                       std::span<double> values);

 private:
  enum class Fit { absent, passes, fits };
  Fit try_metrics(std::vector<const char*> names);
  void release();

  const CuptiApi& cupti_;
  const CuptiPmApi& pm_;
  std::string chip_;
  std::vector<std::uint8_t> availability_;
  CUpti_Profiler_Host_Object* object_ = nullptr;
  std::vector<std::uint8_t> config_image_;
  std::vector<const char*> names_;
  std::vector<std::string> shown_, lacking_;
};

}  // namespace warpstep::profiler
