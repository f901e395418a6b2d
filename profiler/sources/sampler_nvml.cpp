#include "profiler/sources/sampler_nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace warpstep::profiler {
namespace {

using Handle = NvmlFunctions::Handle;

// Values of nvmlReturn_t.
constexpr int succeeded = 0;
constexpr int not_supported = 3;
constexpr int function_not_found = 13;
// Values of nvmlClockType_t.
constexpr int sm_domain = 1;
constexpr int memory_domain = 2;

constexpr int max_failures = 3;

template <class Function>
void load(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

// Calls a function of NVML; a missing one gives NVML's own error for that.
template <class... Parameters, class... Arguments>
int call(int (*function)(Parameters...), Arguments... arguments) {
  return function ? function(arguments...) : function_not_found;
}

template <class Value>
int answer(int result, Value value, double* to, double scale = 1) {
  *to = static_cast<double>(value) * scale;
  return result;
}

int utilisation(const NvmlFunctions& nvml, Handle gpu, double* to) {
  NvmlFunctions::Utilisation value{};
  const int result = call(nvml.utilisation, gpu, &value);
  return answer(result, value.gpu, to);
}
int memory(const NvmlFunctions& nvml, Handle gpu, double* to) {
  NvmlFunctions::Memory value{};
  const int result = call(nvml.memory, gpu, &value);
  return answer(result, value.used, to);
}
int power(const NvmlFunctions& nvml, Handle gpu, double* to) {
  unsigned value = 0;
  const int result = call(nvml.power, gpu, &value);
  return answer(result, value, to, 1e-3);
}
int temperature(const NvmlFunctions& nvml, Handle gpu, double* to) {
  unsigned value = 0;
  const int result = call(nvml.temperature, gpu, 0, &value);
  return answer(result, value, to);
}
template <int domain>
int clock(const NvmlFunctions& nvml, Handle gpu, double* to) {
  unsigned value = 0;
  const int result = call(nvml.clock, gpu, domain, &value);
  return answer(result, value, to);
}
int throttle(const NvmlFunctions& nvml, Handle gpu, double* to) {
  unsigned long long value = 0;
  const int result = call(nvml.throttle_reasons, gpu, &value);
  return answer(result, value, to);
}

}  // namespace

const std::array<Nvml::Query, 7> Nvml::queries{
    Query{"utilisation %", utilisation},
    Query{"memory used bytes", memory},
    Query{"power W", power},
    Query{"temperature C", temperature},
    Query{"sm clock MHz", clock<sm_domain>},
    Query{"memory clock MHz", clock<memory_domain>},
    Query{"throttle reasons", throttle},
};

NvmlFunctions load_nvml(std::string* why) {
  NvmlFunctions nvml;
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* reason = ::dlerror();
    *why =
        fmt::format("GPUs are not sampled: {}", reason ? reason : "libnvidia-ml.so.1 is missing");
    return nvml;
  }
  load(library, nvml.init, "nvmlInit_v2");
  load(library, nvml.shutdown, "nvmlShutdown");
  load(library, nvml.error_string, "nvmlErrorString");
  load(library, nvml.driver_version, "nvmlSystemGetDriverVersion");
  load(library, nvml.handle_at, "nvmlDeviceGetHandleByPciBusId_v2");
  load(library, nvml.name, "nvmlDeviceGetName");
  load(library, nvml.utilisation, "nvmlDeviceGetUtilizationRates");
  load(library, nvml.memory, "nvmlDeviceGetMemoryInfo");
  load(library, nvml.power, "nvmlDeviceGetPowerUsage");
  load(library, nvml.temperature, "nvmlDeviceGetTemperature");
  load(library, nvml.clock, "nvmlDeviceGetClockInfo");
  load(library, nvml.max_clock, "nvmlDeviceGetMaxClockInfo");
  load(library, nvml.application_clock, "nvmlDeviceGetApplicationsClock");
  load(library, nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (!nvml.throttle_reasons)  // the name before driver 535
    load(library, nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  load(library, nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  load(library, nvml.persistence, "nvmlDeviceGetPersistenceMode");
  load(library, nvml.ecc, "nvmlDeviceGetEccMode");
  return nvml;
}

Nvml::Nvml(const NvmlFunctions& functions, const std::vector<GpuPlace>& gpus)
    : functions_(functions) {
  int result = call(functions_.init);
  started_ = result == succeeded;
  if (result != succeeded) {
    notes_.push_back(fmt::format("GPUs are not sampled: NVML says: {}", text_of(result)));
    return;
  }
  for (const GpuPlace& gpu : gpus) {
    Device device{.number = gpu.number};
    if (gpu.bus.empty()) {
      notes_.push_back(fmt::format(
          "gpu {} is not sampled: CUDA does not say where on the PCI bus it is", gpu.number));
      continue;
    }
    result = call(functions_.handle_at, gpu.bus.c_str(), &device.handle);
    if (result == succeeded)
      devices_.push_back(device);
    else
      notes_.push_back(fmt::format("gpu {} is not sampled: NVML says of {}: {}", gpu.number,
                                   gpu.bus, text_of(result)));
  }
}

Nvml::~Nvml() {
  if (started_) call(functions_.shutdown);
}

std::string Nvml::text_of(int result) const {
  const char* text = functions_.error_string ? functions_.error_string(result) : nullptr;
  return text ? text : fmt::format("error {}", result);
}

std::vector<Metric> Nvml::read() {
  std::vector<Metric> metrics;
  for (Device& device : devices_)
    for (std::size_t i = 0; i < queries.size(); ++i) {
      int& failures = device.failures[i];
      if (failures == max_failures) continue;
      double value = 0;
      const int result = queries[i].run(functions_, device.handle, &value);
      if (result == succeeded) {
        failures = 0;
        metrics.push_back({fmt::format("gpu {} {}", device.number, queries[i].what), value});
        continue;
      }
      ++failures;
      if (result == not_supported || result == function_not_found) failures = max_failures;
      if (failures == max_failures)
        notes_.push_back(fmt::format("gpu {}: {} is no longer sampled: NVML says: {}",
                                     device.number, queries[i].what, text_of(result)));
    }
  return metrics;
}

std::vector<Nvml::Gpu> Nvml::describe() {
  std::vector<Gpu> gpus;
  for (const Device& device : devices_) {
    Gpu& gpu = gpus.emplace_back();
    gpu.number = device.number;
    std::array<char, 96> name{};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
    if (call(functions_.name, device.handle, name.data(), unsigned{name.size() - 1}) == succeeded)
      gpu.name = name.data();
    unsigned value = 0;
    const auto checked = [&value](int result) { return result == succeeded ? value : 0; };
    gpu.power_limit_w = 1e-3 * checked(call(functions_.power_limit, device.handle, &value));
    gpu.sm_clock_mhz = checked(call(functions_.clock, device.handle, sm_domain, &value));
    gpu.memory_clock_mhz = checked(call(functions_.clock, device.handle, memory_domain, &value));
    gpu.application_sm_clock_mhz =
        checked(call(functions_.application_clock, device.handle, sm_domain, &value));
    gpu.max_sm_clock_mhz = checked(call(functions_.max_clock, device.handle, sm_domain, &value));
    gpu.max_memory_clock_mhz =
        checked(call(functions_.max_clock, device.handle, memory_domain, &value));
    if (call(functions_.persistence, device.handle, &value) == succeeded)
      gpu.persistence = value != 0 ? 1 : 0;
    unsigned next = 0;
    if (call(functions_.ecc, device.handle, &value, &next) == succeeded)
      gpu.ecc = value != 0 ? 1 : 0;
  }
  return gpus;
}

std::string Nvml::driver_version() const {
  std::array<char, 80> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  if (!started_) return {};
  const int result = call(functions_.driver_version, text.data(), unsigned{text.size() - 1});
  return result == succeeded ? std::string(text.data()) : std::string();
}

std::vector<std::string> Nvml::take_notes() {
  return std::exchange(notes_, {});
}

}  // namespace warpstep::profiler
