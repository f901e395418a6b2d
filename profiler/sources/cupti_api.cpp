#include "profiler/sources/cupti_api.h"

#include <fmt/format.h>
#include <time.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "profiler/sources/cupti_calls.h"
#include "profiler/sources/cupti_trace.h"

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

// How CUPTI is taken hold of, and why it may not be had.

namespace {

std::atomic<Tracer*> attached{nullptr};

void CUPTIAPI on_buffer_wanted(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  Tracer* tracer = attached.load(std::memory_order_acquire);
  *buffer = tracer ? tracer->pool().give() : nullptr;
  *bytes = *buffer ? tracer->pool().bytes() : 0;
  *records = 0;  // as many as fit
}

void CUPTIAPI on_buffer_filled(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                               std::size_t bytes) {
  if (Tracer* tracer = attached.load(std::memory_order_acquire)) tracer->pool().take(buffer, bytes);
}

void CUPTIAPI on_resource(void* tracer, CUpti_CallbackDomain domain, CUpti_CallbackId event,
                          const void* data) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && data)
    static_cast<Tracer*>(tracer)->resources().on_event(
        event, *static_cast<const CUpti_ResourceData*>(data));
}

// Nothing of it reaches the training: what is thrown becomes a note.
class CuptiTrace final : public DeviceTrace {
 public:
  explicit CuptiTrace(Tracer& tracer) : tracer_(tracer) {}
  ~CuptiTrace() override { tracer_.detach(); }
  void begin() override {
    try {
      tracer_.begin();
    } catch (const std::exception& error) {
      failed_ = error.what();
    }
  }
  Traced end() override {
    Traced traced;
    try {
      traced = tracer_.end();
    } catch (const std::exception& error) {
      failed_ = error.what();
    }
    if (!failed_.empty())
      traced.notes.push_back(fmt::format("The GPU's activities are missing: {}.", failed_));
    failed_.clear();
    return traced;
  }

 private:
  Tracer& tracer_;
  std::string failed_;
};

OpenedTrace refuse(const std::string& why) {
  return {nullptr, "The GPU's activities are not recorded: " + why + "."};
}

}  // namespace

std::string Tracer::subscribe() {
  std::array<char, 2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
  CUpti_SubscriberParams parameters{};
  parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  parameters.subscriberName = "warpstep";
  parameters.oldSubscriberName = holder.data();
  parameters.oldSubscriberSize = holder.size() - 1;
  const CUptiResult result = api_.subscribe(&subscriber_, &on_resource, this, &parameters);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    return fmt::format("CUPTI is held by {}; only one tool can have it, so run without that one",
                       holder[0] ? holder.data() : "another tool (nsys, ncu, cuda-gdb, ...)");
  if (result != CUPTI_SUCCESS) return explain_failure(api_, "cuptiSubscribe_v2", result);
  return {};
}

std::string Tracer::attach(const DeviceTraceOptions& options, std::vector<std::string>& weaker) {
  if (std::string why = subscribe(); !why.empty()) return why;
  const auto check = [&](const char* function, CUptiResult result, const char* consequence) {
    if (result != CUPTI_SUCCESS)
      weaker.push_back(fmt::format("{}: {}", consequence, explain_failure(api_, function, result)));
    return result == CUPTI_SUCCESS;
  };
  for (const CUpti_CallbackId event : ResourceMap::events())
    if (!check("cuptiEnableCallback",
               api_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, event),
               "kernels of CUDA graphs are not told apart by call"))
      break;
  check("cuptiSetThreadIdType", api_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM),
        "launches do not tell their thread");
  // Else CUPTI clears each buffer on the thread that trains.
  std::uint8_t zeroed = 1;
  std::size_t bytes = sizeof zeroed;
  check("cuptiActivitySetAttribute",
        api_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed),
        "recording costs more time");
  attached.store(this, std::memory_order_release);
  if (const CUptiResult result = api_.register_callbacks(&on_buffer_wanted, &on_buffer_filled);
      result != CUPTI_SUCCESS) {
    detach();
    return explain_failure(api_, "cuptiActivityRegisterCallbacks", result);
  }
  if (!calls::follow(api_))
    weaker.push_back("kernels are not told apart by call: too many listen to spans");
  if (options.dump.empty()) return {};
  try {
    dump_ = std::make_unique<DumpWriter>(options.dump);
  } catch (const std::exception& error) {
    weaker.push_back(fmt::format("activity buffers are not dumped: {}", error.what()));
  }
  return {};
}

void Tracer::detach() noexcept {
  try {
    end();
  } catch (...) {  // its records are nobody's any more
  }
  calls::ignore();
  api_.unsubscribe(subscriber_);
  dump_.reset();
  Tracer* self = this;
  attached.compare_exchange_strong(self, nullptr);
}

OpenedTrace open_trace(const CuptiApi& api, const DeviceTraceOptions& options,
                       const TraceSettings& settings) {
  static std::mutex mutex;
  static auto& immortal = *new std::vector<std::unique_ptr<Tracer>>;
  const std::lock_guard lock(mutex);
  if (attached.load()) return refuse("they are already, and only once in a process");
  if (const std::string why = why_no_device(api); !why.empty()) return refuse(why);
  if (const std::string why = why_no_library(api); !why.empty()) return refuse(why);
  auto tracer = std::make_unique<Tracer>(api, settings);
  std::vector<std::string> weaker;
  if (const std::string why = tracer->attach(options, weaker); !why.empty()) {
    immortal.push_back(std::move(tracer));
    return refuse(why);
  }
  immortal.push_back(std::move(tracer));
  std::string why;
  for (const std::string& one : weaker) why += (why.empty() ? "" : "; ") + one;
  if (!why.empty()) why = "The GPU's activities are recorded in part: " + why + ".";
  return {std::make_unique<CuptiTrace>(*immortal.back()), why};
}

OpenedTrace open_device_trace(const DeviceTraceOptions& options) {
  try {
    return open_trace(load_cupti_api(), options);
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

}  // namespace warpstep::profiler
