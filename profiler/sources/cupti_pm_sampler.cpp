#include "profiler/sources/cupti_pm_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "engine/core/record.h"
#include "engine/core/thread.h"
#include "profiler/sources/cupti_clock.h"

namespace warpstep::profiler {
namespace {

constexpr int max_reads_at_end = 10'000;  // training waits for the end of a window

std::atomic<bool> is_sampling{false};  // in this process

OpenedPmSampling refuse_sampling(const std::string& why) {
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
  if (lacks(p.vGpu)) return "it is a virtual GPU without profiling: enable that on its host";
  if (lacks(p.confidentialCompute)) return "confidential computing is on";
  if (lacks(p.cmp)) return "it is a mining GPU";
  if (lacks(p.wsl)) return "it runs under WSL";
  return "CUPTI gives no reason";
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
  // Exactly once: CUPTI does not count calls of cuptiProfilerInitialize().
  if (initialized_) {
    auto p =
        sized<CUpti_Profiler_DeInitialize_Params>(CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
    pm_.deinitialize(&p);
  }
  if (owns_sampling_) is_sampling = false;
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
        ": another tool may hold the counters; stop it (nsys, ncu, or DCGM with dcgmi profile "
        "--pause) and run again";
  throw PmFailure(why);
}

// Enables PM sampling once, not for each window, which would take longer than a short warm-up.
// Whether CUPTI locks the clocks from here on or only during windows is not verified on a GPU, so
// the report assumes the whole run.
void PmSampler::open() {
  if (is_sampling.exchange(true))
    throw PmFailure("this process samples them already, which works only once at a time");
  owns_sampling_ = true;
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
  if (pm_.device_supported(&p) != CUPTI_SUCCESS) return;  // later calls fail if it is not
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
  // According to CUPTI's guide Turing and GA100 have no trigger by time: there a million cycles of
  // the system clock are about a millisecond.
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

void PmSampler::begin() {
  if (started_ || !broken_.empty()) return;
  try {
    raw_.clear();
    clocks_.assign(1, read_clocks(cupti_));
    overflows_ = without_times_ = without_values_ = dropped_ = 0;
    first_ = is_used_ = true;
    stopping_ = false;
    start();
    started_ = true;
    // Without a thread, end() reads what the hardware's buffer still holds.
    try_start_thread(thread_, "gpu counters", [this] { work(); });
  } catch (const std::exception& error) {
    break_off(error.what());
  }
}

Measured PmSampler::end(std::uint64_t from_ns, std::uint64_t to_ns) {
  Measured measured;
  try {
    if (std::exchange(started_, false)) {
      stop_thread();
      finish();
      clocks_.push_back(read_clocks(cupti_));
      measured = map(from_ns, to_ns);
    }
  } catch (const std::exception& error) {
    break_off(error.what());
  }
  if (!broken_.empty() && !std::exchange(reported_, true))
    measured.notes.push_back(fmt::format("The GPU's counters are no longer sampled: {}.", broken_));
  return measured;
}

// Stops and reads the rest; if that fails, earlier samples stay valid.
void PmSampler::finish() noexcept {
  try {
    stop();
    for (int reads = 0; reads < max_reads_at_end && broken_.empty() && decode();) ++reads;
  } catch (const std::exception& error) {
    break_off(error.what());
  }
}

void PmSampler::break_off(const char* why) noexcept {
  try {
    if (broken_.empty()) broken_ = why;
  } catch (...) {  // no memory for the reason
    broken_ = "out of memory";
  }
}

void PmSampler::start() {
  auto p = sized<CUpti_PmSampling_Start_Params>(CUpti_PmSampling_Start_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  check("cuptiPmSamplingStart", pm_.start(&p), true);
}

void PmSampler::stop() {
  auto p = sized<CUpti_PmSampling_Stop_Params>(CUpti_PmSampling_Stop_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  check("cuptiPmSamplingStop", pm_.stop(&p));
}

void PmSampler::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool PmSampler::is_stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void PmSampler::work() noexcept {
  using Clock = std::chrono::steady_clock;
  try {
    auto read_at = Clock::now();
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (wake_.wait_for(lock, settings_.between_decodes, [this] { return stopping_; })) return;
      }
      while (decode() && !is_stopping()) {
      }
      if (Clock::now() - read_at < settings_.between_readings) continue;
      clocks_.push_back(read_clocks(cupti_));
      read_at = Clock::now();
    }
  } catch (const std::exception& error) {
    break_off(error.what());
  } catch (...) {
    break_off("unknown error");
  }
}

void PmSampler::clear_counter_data() {
  auto image = sized<CUpti_PmSampling_CounterDataImage_Initialize_Params>(
      CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  image.pPmSamplingObject = object_;
  image.counterDataSize = counter_data_.size();
  image.pCounterData = counter_data_.data();
  check("cuptiPmSamplingCounterDataImageInitialize", pm_.initialize_counter_data(&image));
  is_used_ = false;
}

// Reads the content of the hardware's buffer. True: there may be more.
bool PmSampler::decode() {
  if (is_used_) clear_counter_data();
  auto p =
      sized<CUpti_PmSampling_DecodeData_Params>(CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  p.pCounterDataImage = counter_data_.data();
  p.counterDataImageSize = counter_data_.size();
  const CUptiResult result = pm_.decode(&p);
  // CUPTI reports an overflow in either way; samples from before it can still be read.
  if (p.overflow != 0 || result == CUPTI_ERROR_OUT_OF_MEMORY)
    ++overflows_;
  else
    check("cuptiPmSamplingDecodeData", result);
  auto info = sized<CUpti_PmSampling_GetCounterDataInfo_Params>(
      CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE);
  info.pCounterDataImage = counter_data_.data();
  info.counterDataImageSize = counter_data_.size();
  check("cuptiPmSamplingGetCounterDataInfo", pm_.counter_data_info(&info));
  is_used_ = info.numCompletedSamples > 0;
  for (std::size_t i = 0; i < info.numCompletedSamples; ++i) read(i);
  // Decoding also stops for undocumented reasons, with valid samples.
  return is_used_ && p.decodeStopReason != CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
}

void PmSampler::read(std::size_t sample) {
  // The first sample began before the counters were started, at an unknown time.
  if (std::exchange(first_, false)) return;
  if (raw_.size() >= settings_.max_samples) {
    ++dropped_;
    return;
  }
  auto p = sized<CUpti_PmSampling_CounterData_GetSampleInfo_Params>(
      CUpti_PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE);
  p.pPmSamplingObject = object_;
  p.pCounterDataImage = counter_data_.data();
  p.counterDataImageSize = counter_data_.size();
  p.sampleIndex = sample;
  check("cuptiPmSamplingCounterDataGetSampleInfo", pm_.sample_info(&p));
  if (p.startTimestamp == 0 || p.endTimestamp <= p.startTimestamp) {
    ++without_times_;
    return;
  }
  Raw raw{p.startTimestamp, p.endTimestamp, {}};
  check("cuptiProfilerHostEvaluateToGpuValues",
        host_->evaluate(counter_data_, sample, std::span(raw.values)));
  raw_.push_back(raw);
}

// CUPTI's guide calls the times of samples "CPU based", and its authors say that they are converted
// like those of activities: so they are of CLOCK_REALTIME and are mapped the same way. This is not
// verified on a GPU; with another clock no sample would be in a window, and a note would say so.
Measured PmSampler::map(std::uint64_t from_ns, std::uint64_t to_ns) {
  Measured measured;
  const ClockMap clock(clocks_);
  std::vector<std::uint32_t> names;
  for (const std::string& shown : host_->shown())
    names.push_back(record::Name(fmt::format("gpu {} {}", device_, shown), Kind::metric).id());
  std::size_t within = 0;
  for (const Raw& raw : raw_) {
    const std::uint64_t begin = clock.to_monotonic(raw.begin_ns);
    const std::uint64_t end = clock.to_monotonic(raw.end_ns);
    if (begin < from_ns || end > to_ns) continue;
    ++within;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (std::isfinite(raw.values[i]))
        measured.samples.push_back({end, names[i], 0, raw.values[i]});
      else
        ++without_values_;
  }
  std::ranges::stable_sort(measured.samples, {}, &Sample::at_ns);
  if (to_ns <= from_ns) return measured;  // not a window
  const auto note = [&](std::uint64_t count, const char* text) {
    if (count > 0) measured.notes.push_back(fmt::format(fmt::runtime(text), count));
  };
  note(overflows_,
       "The buffer of the GPU's counters overflowed (in {} readings): samples are missing.");
  note(without_times_, "{} samples of the GPU's counters have no times and are left out.");
  note(without_values_, "{} values of the GPU's counters are not numbers and are left out.");
  note(dropped_, "{} samples of the GPU's counters are missing: the window was too long.");
  if (within == 0 && broken_.empty())
    measured.notes.push_back(
        fmt::format("No sample of the GPU's counters is in the window of {:.1f} ms: {} were read.",
                    static_cast<double>(to_ns - from_ns) * 1e-6, raw_.size()));
  return measured;
}

OpenedPmSampling open_pm_sampling(const CuptiApi& cupti, const CuptiPmApi& pm, int device,
                                  const PmSettings& settings) {
  if (const std::string why = why_no_device(cupti); !why.empty()) return refuse_sampling(why);
  if (const std::string why = why_no_library(cupti); !why.empty()) return refuse_sampling(why);
  if (!pm.why.empty())
    return refuse_sampling(
        fmt::format("CUPTI's profiling functions cannot be loaded ({}); install the "
                    "package cuda-cupti-13-0 in full",
                    pm.why));
  auto sampler = std::make_unique<PmSampler>(cupti, pm, device, settings);
  try {
    sampler->open();
  } catch (const std::exception& error) {
    return refuse_sampling(error.what());
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
    return refuse_sampling(error.what());
  }
}

}  // namespace warpstep::profiler
