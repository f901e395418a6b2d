#include "profiler/sources/cupti_api.h"

#include <fmt/format.h>
#include <time.h>

#include "engine/core/clock.h"
#include "profiler/sources/cupti_library.h"

namespace warpstep::profiler {
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
        "libcupti has version {}, and this build knows the records of {} to {}; install "
        "cuda-cupti-13-0, or build Warpstep with that version's headers",
        version, CUPTI_API_VERSION / 100 * 100, CUPTI_API_VERSION / 100 * 100 + 99);
  return {};
}

}  // namespace warpstep::profiler
