// The functions of CUPTI and of the driver that the device's source calls, as a table: loaded when
// the program runs, so that one program starts everywhere, and replaced by a test.
#pragma once

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace warpstep::profiler {

// NVIDIA's libraries, loaded when the program runs.

class CuptiLibrary {
 public:
  // The first of the names that can be loaded. It is never unloaded: threads of its own may run.
  explicit CuptiLibrary(const std::vector<std::string>& names);

  template <class Function>
  void get(const char* name, Function& function) {
    if (!handle_) return;
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (!function && why_.empty()) why_ = fmt::format("the library has no {}", name);
  }
  const std::string& why() const { return why_; }  // empty: all is there

 private:
  void* handle_ = nullptr;
  std::string why_;
};

// Where libcupti.so.13 may be, likeliest first.
std::vector<std::string> cupti_paths();

struct CuptiApi {
  decltype(&::cuptiGetVersion) get_version = nullptr;  // null: the library is not there
  decltype(&::cuptiGetResultString) get_result_string = nullptr;
  decltype(&::cuptiSubscribe_v2) subscribe = nullptr;
  decltype(&::cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&::cuptiEnableCallback) enable_callback = nullptr;
  decltype(&::cuptiGetCallbackName) get_callback_name = nullptr;
  decltype(&::cuptiGetTimestamp) get_timestamp = nullptr;
  decltype(&::cuptiGetGraphNodeId) get_graph_node_id = nullptr;
  decltype(&::cuptiSetThreadIdType) set_thread_id_type = nullptr;
  decltype(&::cuptiActivitySetAttribute) set_attribute = nullptr;
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&::cuptiActivityEnable) enable = nullptr;
  decltype(&::cuptiActivityDisable) disable = nullptr;
  decltype(&::cuptiActivityEnableRuntimeApi) enable_runtime_api = nullptr;
  decltype(&::cuptiActivityEnableDriverApi) enable_driver_api = nullptr;
  decltype(&::cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&::cuptiActivityGetNumDroppedRecords) get_dropped = nullptr;
  decltype(&::cuptiActivityPushExternalCorrelationId) push_external = nullptr;
  decltype(&::cuptiActivityPopExternalCorrelationId) pop_external = nullptr;

  decltype(&::cuInit) init = nullptr;  // null: there is no driver
  decltype(&::cuDeviceGetCount) device_count = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetName) device_name = nullptr;
  decltype(&::cuDeviceTotalMem) device_total_memory = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&::cuCtxPushCurrent) push_context = nullptr;
  decltype(&::cuCtxPopCurrent) pop_context = nullptr;
  decltype(&::cuCtxSynchronize) synchronize = nullptr;

  std::uint64_t (*monotonic_ns)() = nullptr;
  std::uint64_t (*realtime_ns)() = nullptr;

  std::string why_no_cupti, why_no_driver;  // what the loader said
};

// What this machine has.
CuptiApi load_cupti_api();

// Whether the library's records are laid out as in the headers that this was compiled with: CUPTI
// gives a kind's newest record, which may be longer in the next minor version.
constexpr bool knows_cupti_version(std::uint32_t version) {
  return version / 100 == CUPTI_API_VERSION / 100;
}

// "cuptiSubscribe_v2 gave CUPTI_ERROR_UNKNOWN (999)", with the fix where there is one.
std::string explain_failure(const CuptiApi& api, const std::string& function, CUptiResult result);

// Why there is no device, or no library of a version that is known, to go on with; empty: there is.
// CUPTI's functions give success, and nothing else, where there is no driver: so that is asked
// first.
std::string why_no_device(const CuptiApi& api);
std::string why_no_library(const CuptiApi& api);

}  // namespace warpstep::profiler
