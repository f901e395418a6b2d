#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/wheels.h"
#include "kernels/cuda/assumed_devices.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/compiled.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr int oldest_capability = 75;   // Turing: the first that CUDA 13 compiles for
constexpr int overlap_capability = 90;  // Hopper: the first with programmatic dependent launch

std::atomic<bool> launches_overlap{false};

// Whether a switch in the environment is on; UsageError for anything but 0 and 1.
bool is_on(const char* name) {
  const char* chosen = std::getenv(name);
  const std::string_view value = chosen ? chosen : "0";
  if (value != "0" && value != "1") fail<UsageError>("{} is '{}'; it can be 0 or 1", name, value);
  return value == "1";
}

std::string cuda_version(int number) {  // 13000 -> "13.0"
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// The number of devices; throws DeviceError with the reason if there are none. Without a driver
// every call returns cudaErrorInsufficientDriver; version 0 then means that there is no driver.
int device_count() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  ignore(cudaDriverGetVersion(&driver));
  ignore(cudaRuntimeGetVersion(&runtime));
  ignore(cudaGetLastError());
  if (status == cudaErrorInsufficientDriver && driver == 0)
    fail<DeviceError>("no NVIDIA driver on this machine");
  if (status == cudaErrorInsufficientDriver)
    fail<DeviceError>(
        "the NVIDIA driver supports CUDA {}, this build needs {}; update the driver (nvidia-smi "
        "prints its version)",
        cuda_version(driver), cuda_version(runtime));
  if (status == cudaErrorStubLibrary)
    fail<DeviceError>(
        "libcuda.so.1 is the toolkit's stub, not a driver; remove its folder from "
        "LD_LIBRARY_PATH");
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    fail<DeviceError>(
        "the NVIDIA driver finds no device that this process may use; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES");
  check(status, "cudaGetDeviceCount");
  return 0;
}

// The ordinal that `options` asks for. A launcher may show each rank its own device only.
int ordinal_for(const BackendOptions& options, int count) {
  if (options.device || !options.communicator) return options.device.value_or(0);
  const World& world = options.communicator->world();
  if (count > 1 && world.local_rank >= count)
    fail<DeviceError>(
        "rank {} is number {} of {} on this machine, which has {} CUDA devices; start at most one "
        "rank for each",
        world.rank, world.local_rank + 1, world.local_size, count);
  return count == 1 ? 0 : world.local_rank;
}

Settings device_settings(const BackendOptions& options) {
  const int count = device_count();
  const int ordinal = ordinal_for(options, count);
  if (ordinal >= count)
    fail<DeviceError>("there is no cuda:{}; this machine has {} CUDA device{}: cuda:0{}", ordinal,
                      count, count == 1 ? "" : "s",
                      count == 1 ? "" : fmt::format(" to cuda:{}", count - 1));
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  Settings settings;
  settings.ordinal = ordinal;
  settings.device_name = properties.name;
  settings.multiprocessors = properties.multiProcessorCount;
  settings.compute_capability = 10 * properties.major + properties.minor;
  if (settings.compute_capability < oldest_capability)
    fail<DeviceError>(
        "{} is of compute capability {}.{}; CUDA 13 compiles for 7.5 (Turing) and later",
        settings.device_name, properties.major, properties.minor);
  settings.kernel_capability = std::min(settings.compute_capability, compiled_capability());
  launches_overlap =
      is_on("WARPSTEP_OVERLAP_LAUNCHES") && settings.kernel_capability >= overlap_capability;
  return settings;
}

// The version that a library reports by its function `status f(int*)`; 0 without the library.
int version_of(const char* library, const char* function) {
  // Stays loaded: closing it would leak what the library allocated.
  void* handle = open_library(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return 0;
  int version = 0;
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(handle, function));
  if (!ask || ask(&version) != 0) version = 0;
  dlclose(handle);
  return version;
}

std::string file_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

// The file that the process has loaded as `library`; empty if none.
std::string file_of(const char* library) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return {};
  std::string file = file_of(handle);
  dlclose(handle);
  return file;
}

// "CUPTI 130001", or the file of a later CUPTI than 13.1: its functions, also the one for the
// version, first ask the driver, and those of 13.2 call each other without end if there is none.
std::string describe_cupti() {
  constexpr const char* name = "libcupti.so.13";
  void* handle = open_library(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return "no CUPTI";
  const bool asks_driver = dlsym(handle, "cuptiActivityEnable_v2") != nullptr;
  const std::string file = file_of(handle);
  dlclose(handle);
  return asks_driver ? fmt::format("CUPTI of {}", file)
                     : fmt::format("CUPTI {}", version_of(name, "cuptiGetVersion"));
}

}  // namespace

bool overlaps_launches() {
  return launches_overlap;
}

Settings open_device(const BackendOptions& options) {
  Settings settings = options.assumed_device.empty() ? device_settings(options)
                                                     : assume_device(options.assumed_device);
  settings.tf32 = options.tf32;
  settings.exact_math = options.exact_math;
  settings.deterministic = options.deterministic;
  settings.autotune = options.autotune;
  settings.workspace_cap = options.workspace_cap;
  settings.cache = options.plan_cache;
  const char* plans = std::getenv("WARPSTEP_CUDNN_PLANS");
  if (plans && std::string_view(plans) != "handle" && std::string_view(plans) != "properties")
    fail<UsageError>("WARPSTEP_CUDNN_PLANS is '{}'; it can be properties (the default) or handle",
                     plans);
  settings.plan_by_handle = settings.has_device() && plans && std::string_view(plans) == "handle";
  return settings;
}

std::string describe_device(const Settings& settings) {
  const std::string what = fmt::format("{} (sm_{}, {} SMs", settings.device_name,
                                       settings.compute_capability, settings.multiprocessors);
  if (!settings.has_device()) return what + "), assumed: plans alone, nothing can run";
  int driver = 0, runtime = 0;
  std::size_t free = 0, total = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return fmt::format("{}, {:.1f} GiB), driver for CUDA {}, runtime {}", what,
                     static_cast<double>(total) / (1 << 30), cuda_version(driver),
                     cuda_version(runtime));
}

std::string bus_of(const Settings& settings) {
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), settings.ordinal) ==
      cudaSuccess)
    return bus.data();
  ignore(cudaGetLastError());
  return {};
}

std::string describe_optional_libraries() {
  const int nccl = version_of("libnccl.so.2", "ncclGetVersion");
  const std::string cudnn = file_of("libcudnn.so.9");
  return fmt::format("{}, {}{}", describe_cupti(),
                     nccl == 0
                         ? "no NCCL"
                         : fmt::format("NCCL {}.{}.{}", nccl / 10000, nccl / 100 % 100, nccl % 100),
                     cudnn.empty() ? "" : fmt::format(", cuDNN of {}", cudnn));
}

}  // namespace warpstep::cuda
