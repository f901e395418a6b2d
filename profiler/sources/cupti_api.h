// The functions of CUPTI and of the driver that GPU tracing calls, as a table. They are loaded at
// run time, so that one program starts on every machine; tests supply their own table.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// One of NVIDIA's libraries, loaded at run time.
class CuptiLibrary {
 public:
  // Loads the first of the names that can be loaded. It is never unloaded: it may run threads.
  explicit CuptiLibrary(const std::vector<std::string>& names);

  template <class Function>
  void get(const char* name, Function& function) {
    function = reinterpret_cast<Function>(symbol(name));
  }
  const std::string& why() const { return why_; }  // what is missing; empty: nothing

 private:
  void* symbol(const char* name);

  void* handle_ = nullptr;
  std::string why_;
};

// Candidate paths of libcupti.so.13, most likely first.
std::vector<std::string> cupti_paths();

struct CuptiApi {
  decltype(&::cuptiGetVersion) get_version = nullptr;  // null: no library
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
  decltype(&::cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&::cuptiActivityGetNumDroppedRecords) get_dropped = nullptr;
  decltype(&::cuptiActivityPushExternalCorrelationId) push_external = nullptr;
  decltype(&::cuptiActivityPopExternalCorrelationId) pop_external = nullptr;

  decltype(&::cuInit) init = nullptr;  // null: no driver
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

  std::string why_no_cupti, why_no_driver;  // the errors of the dynamic loader
};

// The functions of this machine's libraries.
CuptiApi load_cupti_api();

// CUPTI writes the newest record of each kind, which may be longer in the next minor version. The
// headers of these versions were compared: each field, constant and parameter that is used here has
// the same place and value in all of them (README.md); only the ends of records differ.
constexpr std::uint32_t oldest_cupti = 130'000, newest_cupti = 130'599;

constexpr bool knows_cupti_version(std::uint32_t version) {
  return version >= oldest_cupti && version <= newest_cupti;
}

// "cuptiSubscribe_v2 gave CUPTI_ERROR_UNKNOWN (999)", with the fix where there is one.
std::string explain_failure(const CuptiApi& api, const std::string& function, CUptiResult result);

// Why there is no device, or no library of a supported version; empty: there is one. Call
// why_no_device() first: without a driver CUPTI's functions return success and do nothing.
std::string why_no_device(const CuptiApi& api);
std::string why_no_library(const CuptiApi& api);

// Properties of the devices, from the driver in `api`; empty without one.
std::vector<Device> query_devices(const CuptiApi& api);

}  // namespace warpstep::profiler
