#include "profiler/sources/cupti_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <array>
#include <cstdlib>

#include "engine/core/clock.h"
#include "engine/core/record.h"
#include "engine/core/wheels.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

CuptiLibrary::CuptiLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_) break;
    const char* error = ::dlerror();
    if (why_.empty()) why_ = error ? error : name + " cannot be loaded";
  }
  if (handle_) why_.clear();
}

void* CuptiLibrary::symbol(const char* name) {
  if (!handle_) return nullptr;
  void* found = ::dlsym(handle_, name);
  if (!found && why_.empty()) why_ = fmt::format("the library has no {}", name);
  return found;
}

std::vector<std::string> cupti_paths() {
  const std::string name = "libcupti.so.13";
  std::vector<std::string> paths{name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable))
      for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
        paths.push_back(root + (folder + name));
  for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
    paths.push_back("/usr/local/cuda" + (folder + name));
  if (const std::string of_wheel = in_wheels(name); !of_wheel.empty()) paths.push_back(of_wheel);
  return paths;
}

namespace {

std::uint64_t read_realtime() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void load_driver(CuptiApi& api) {
  CuptiLibrary driver({"libcuda.so.1"});
  driver.get("cuInit", api.init);
  driver.get("cuDeviceGetCount", api.device_count);
  driver.get("cuDeviceGet", api.device_get);
  driver.get("cuDeviceGetName", api.device_name);
  driver.get("cuDeviceTotalMem_v2", api.device_total_memory);
  driver.get("cuDeviceGetAttribute", api.device_attribute);
  driver.get("cuCtxPushCurrent_v2", api.push_context);
  driver.get("cuCtxPopCurrent_v2", api.pop_context);
  driver.get("cuCtxSynchronize", api.synchronize);
  if (driver.why().empty()) return;
  api.init = nullptr;
  api.why_no_driver = driver.why();
}

void load_cupti(CuptiApi& api) {
  CuptiLibrary cupti(cupti_paths());
  cupti.get("cuptiGetVersion", api.get_version);
  cupti.get("cuptiGetResultString", api.get_result_string);
  cupti.get("cuptiSubscribe_v2", api.subscribe);
  cupti.get("cuptiUnsubscribe", api.unsubscribe);
  cupti.get("cuptiEnableCallback", api.enable_callback);
  cupti.get("cuptiGetCallbackName", api.get_callback_name);
  cupti.get("cuptiGetTimestamp", api.get_timestamp);
  cupti.get("cuptiGetGraphNodeId", api.get_graph_node_id);
  cupti.get("cuptiSetThreadIdType", api.set_thread_id_type);
  cupti.get("cuptiActivitySetAttribute", api.set_attribute);
  cupti.get("cuptiActivityRegisterCallbacks", api.register_callbacks);
  cupti.get("cuptiActivityEnable", api.enable);
  cupti.get("cuptiActivityDisable", api.disable);
  cupti.get("cuptiActivityEnableRuntimeApi", api.enable_runtime_api);
  cupti.get("cuptiActivityEnableDriverApi", api.enable_driver_api);
  cupti.get("cuptiActivityFlushAll", api.flush_all);
  cupti.get("cuptiActivityGetNextRecord", api.next_record);
  cupti.get("cuptiActivityGetNumDroppedRecords", api.get_dropped);
  cupti.get("cuptiActivityPushExternalCorrelationId", api.push_external);
  cupti.get("cuptiActivityPopExternalCorrelationId", api.pop_external);
  if (cupti.why().empty()) return;
  api.get_version = nullptr;
  api.why_no_cupti = cupti.why();
}

}  // namespace

CuptiApi load_cupti_api() {
  CuptiApi api;
  load_driver(api);
  load_cupti(api);
  api.monotonic_ns = &now_ns;
  api.realtime_ns = &read_realtime;
  return api;
}

std::string explain_failure(const CuptiApi& api, const std::string& function, CUptiResult result) {
  const char* text = nullptr;
  if (!api.get_result_string || api.get_result_string(result, &text) != CUPTI_SUCCESS) text = "";
  std::string sentence =
      fmt::format("{} gave {} ({})", function, text ? text : "", static_cast<int>(result));
  if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
      result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES)
    sentence +=
        ": it needs root, CAP_SYS_ADMIN, or a driver loaded with "
        "NVreg_RestrictProfilingToAdminUsers=0";
  return sentence;
}

std::string why_no_device(const CuptiApi& api) {
  if (!api.init) return fmt::format("there is no NVIDIA driver ({})", api.why_no_driver);
  if (const CUresult result = api.init(0); result != CUDA_SUCCESS)
    return fmt::format("the NVIDIA driver finds no GPU: cuInit gave {}", static_cast<int>(result));
  int count = 0;
  if (api.device_count(&count) != CUDA_SUCCESS || count == 0)
    return "the NVIDIA driver finds no GPU";
  return {};
}

std::string why_no_library(const CuptiApi& api) {
  if (!api.get_version)
    return fmt::format(
        "CUPTI cannot be loaded ({}); install the package cuda-cupti-13-0, or add the folder of "
        "libcupti.so.13 to LD_LIBRARY_PATH",
        api.why_no_cupti);
  std::uint32_t version = 0;
  if (const CUptiResult result = api.get_version(&version); result != CUPTI_SUCCESS)
    return explain_failure(api, "cuptiGetVersion", result);
  if (!knows_cupti_version(version))
    return fmt::format(
        "libcupti has version {}, but Warpstep knows the records of {} to {}; install "
        "cuda-cupti-13-0",
        version, oldest_cupti, newest_cupti);
  return {};
}

namespace {

Device describe(const CuptiApi& api, int ordinal, CUdevice handle) {
  const auto read = [&](CUdevice_attribute attribute) {
    int value = 0;
    const CUresult result = api.device_attribute(&value, attribute, handle);
    return result == CUDA_SUCCESS && value > 0 ? static_cast<std::uint32_t>(value) : 0U;
  };
  std::size_t memory = 0;
  if (api.device_total_memory(&memory, handle) != CUDA_SUCCESS) memory = 0;
  std::array<char, 256> name{};
  if (api.device_name(name.data(), static_cast<int>(name.size()) - 1, handle) != CUDA_SUCCESS)
    name = {'G', 'P', 'U'};
  return {
      .id = static_cast<std::uint32_t>(ordinal),
      .compute_major = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
      .compute_minor = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      .multiprocessors = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      .max_threads_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .max_threads_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .max_blocks_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
      .registers_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      .registers_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
      .warp_size = read(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .total_memory = memory,
      .shared_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      .shared_per_block_optin = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .shared_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
      .reserved_shared_per_block = read(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
      .name = record::Name(name.data()).id(),
  };
}

}  // namespace

std::vector<Device> query_devices(const CuptiApi& api) {
  std::vector<Device> devices;
  int count = 0;
  if (!api.init || api.init(0) != CUDA_SUCCESS || api.device_count(&count) != CUDA_SUCCESS)
    return devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice handle = 0;
    if (api.device_get(&handle, ordinal) == CUDA_SUCCESS)
      devices.push_back(describe(api, ordinal, handle));
  }
  return devices;
}

std::vector<Device> query_devices() {
  return query_devices(load_cupti_api());
}

}  // namespace warpstep::profiler
