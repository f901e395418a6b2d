#include "profiler/sources/cupti_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <cstdlib>
#include <vector>

#include "engine/core/clock.h"

namespace warpstep::profiler {
namespace {

std::uint64_t read_realtime() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

class Library {
 public:
  // The first of the names that can be loaded. It is never unloaded: threads of its own may run.
  explicit Library(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (handle_) break;
      const char* error = ::dlerror();
      if (why_.empty()) why_ = error ? error : name + " cannot be loaded";
    }
    if (handle_) why_.clear();
  }

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

std::vector<std::string> cupti_paths() {
  const std::string name = "libcupti.so.13";
  std::vector<std::string> paths{name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable))
      for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
        paths.push_back(root + (folder + name));
  for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"})
    paths.push_back("/usr/local/cuda" + (folder + name));
  return paths;
}

void load_driver(CuptiApi& api) {
  Library driver({"libcuda.so.1"});
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
  Library cupti(cupti_paths());
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

}  // namespace warpstep::profiler
