// The table's functions, and what else happens in the process: graphs, contexts.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler::testing {
namespace {

FakeCupti* current = nullptr;
thread_local std::vector<std::uint64_t> pushed;

}  // namespace

const std::vector<std::uint64_t>& pushed_externals() {
  return pushed;
}

struct FakeCupti::Functions {
  static CUptiResult get_version(std::uint32_t* version) {
    *version = current->faults.version;
    return CUPTI_SUCCESS;
  }
  static CUptiResult get_result_string(CUptiResult result, const char** text) {
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
      *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
    else
      *text = "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
  }
  static CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function,
                               void* data, CUpti_SubscriberParams* parameters) {
    const Faults& faults = current->faults;
    if (faults.subscribe != CUPTI_SUCCESS) {
      std::strncpy(parameters->oldSubscriberName, faults.holder.c_str(),
                   parameters->oldSubscriberSize);
      return faults.subscribe;
    }
    current->callback_ = function;
    current->callback_data_ = data;
    ++current->subscriptions;
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(current);
    return CUPTI_SUCCESS;
  }
  static CUptiResult unsubscribe(CUpti_SubscriberHandle) {
    current->callback_ = nullptr;
    --current->subscriptions;
    return CUPTI_SUCCESS;
  }
  static CUptiResult enable_callback(std::uint32_t on, CUpti_SubscriberHandle,
                                     CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    if (current->faults.enable_callback != CUPTI_SUCCESS) return current->faults.enable_callback;
    if (on && domain == CUPTI_CB_DOMAIN_RESOURCE) current->callbacks_.insert(id);
    return CUPTI_SUCCESS;
  }
  static CUptiResult get_callback_name(CUpti_CallbackDomain domain, std::uint32_t id,
                                       const char** name) {
    static const std::map<std::uint32_t, const char*> runtime{
        {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel_v7000"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, "cudaGraphLaunch_v10000"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync_v3020"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000, "cudaMemcpyPeerAsync_v4000"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync_v3020"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, "cudaMalloc_v3020"},
        {CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, "cudaStreamSynchronize_v3020"}};
    if (current->faults.callback_name != CUPTI_SUCCESS) return current->faults.callback_name;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
      *name = "cuLaunchKernel";
      return CUPTI_SUCCESS;
    }
    const auto at = runtime.find(id);
    if (at == runtime.end()) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = at->second;
    return CUPTI_SUCCESS;
  }
  static CUptiResult get_timestamp(std::uint64_t* time) {
    if (current->faults.timestamp != CUPTI_SUCCESS) return current->faults.timestamp;
    *time = current->device_now();
    return CUPTI_SUCCESS;
  }
  static CUptiResult get_graph_node_id(CUgraphNode node, std::uint64_t* id) {
    if (!node) return CUPTI_ERROR_INVALID_PARAMETER;
    *id = reinterpret_cast<FakeNode*>(node)->id;
    return CUPTI_SUCCESS;
  }
  static CUptiResult set_thread_id_type(CUpti_ActivityThreadIdType type) {
    if (current->faults.set_thread_id_type != CUPTI_SUCCESS)
      return current->faults.set_thread_id_type;
    current->system_threads_ = type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
    return CUPTI_SUCCESS;
  }
  static CUptiResult set_attribute(CUpti_ActivityAttribute, std::size_t*, void*) {
    return current->faults.set_attribute;
  }
  static CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                        CUpti_BuffersCallbackCompleteFunc complete) {
    if (current->faults.register_callbacks != CUPTI_SUCCESS)
      return current->faults.register_callbacks;
    current->request_ = request;
    current->complete_ = complete;
    return CUPTI_SUCCESS;
  }
  static CUptiResult enable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(current->mutex_);
    const auto fault = current->faults.enable.find(kind);
    if (fault != current->faults.enable.end()) return fault->second;
    current->enabled_.insert(kind);
    return CUPTI_SUCCESS;
  }
  static CUptiResult disable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(current->mutex_);
    current->enabled_.erase(kind);
    return CUPTI_SUCCESS;
  }
  static CUptiResult enable_runtime_api(CUpti_CallbackId id, std::uint8_t on) {
    const std::lock_guard lock(current->mutex_);
    if (!on) current->silent_runtime_.insert(id);
    return CUPTI_SUCCESS;
  }
  static CUptiResult enable_driver_api(CUpti_CallbackId id, std::uint8_t on) {
    const std::lock_guard lock(current->mutex_);
    if (on)
      current->driver_.insert(id);
    else
      current->driver_.erase(id);
    return CUPTI_SUCCESS;
  }
  static CUptiResult flush_all(std::uint32_t) {
    const std::lock_guard lock(current->mutex_);
    if (current->faults.flush != CUPTI_SUCCESS) return current->faults.flush;
    if (!current->faults.hold_back) current->deliver();
    return CUPTI_SUCCESS;
  }
  static CUptiResult get_dropped(CUcontext, std::uint32_t, std::size_t* count) {
    const std::lock_guard lock(current->mutex_);
    *count = std::exchange(current->dropped_, 0) + std::exchange(current->faults.dropped, 0);
    return CUPTI_SUCCESS;
  }
  static CUptiResult push_external(CUpti_ExternalCorrelationKind, std::uint64_t id) {
    pushed.push_back(id);
    return CUPTI_SUCCESS;
  }
  static CUptiResult pop_external(CUpti_ExternalCorrelationKind, std::uint64_t*) {
    if (pushed.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    pushed.pop_back();
    return CUPTI_SUCCESS;
  }

  static CUresult init(unsigned) {
    return current->faults.no_device ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  }
  static CUresult device_count(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
  }
  static CUresult device_get(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  static CUresult device_name(char* name, int bytes, CUdevice) {
    std::strncpy(name, "NVIDIA H200", static_cast<std::size_t>(bytes));
    return CUDA_SUCCESS;
  }
  static CUresult device_total_memory(std::size_t* bytes, CUdevice) {
    *bytes = 150'754'820'096;
    return CUDA_SUCCESS;
  }
  static CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
    if (attribute == CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)
      return CUDA_ERROR_INVALID_VALUE;
    *value = static_cast<int>(attribute);
    return CUDA_SUCCESS;
  }
  static CUresult push_context(CUcontext context) {
    current->current_ = context;
    return CUDA_SUCCESS;
  }
  static CUresult pop_context(CUcontext* popped) {
    *popped = std::exchange(current->current_, nullptr);
    return CUDA_SUCCESS;
  }
  static CUresult synchronize() {
    if (current->faults.synchronize != CUDA_SUCCESS) return current->faults.synchronize;
    if (!current->current_) return CUDA_ERROR_INVALID_CONTEXT;
    current->synchronized.push_back(current->current_);
    return CUDA_SUCCESS;
  }
  static std::uint64_t monotonic_ns() { return current->monotonic_ns_; }
  static std::uint64_t realtime_ns() { return current->device_now(); }
};

FakeCupti::FakeCupti() {
  current = this;
  pushed.clear();
}

FakeCupti::~FakeCupti() {
  if (current == this) current = nullptr;
}

CuptiApi FakeCupti::api() const {
  using F = Functions;
  CuptiApi api{.get_version = &F::get_version,
               .get_result_string = &F::get_result_string,
               .subscribe = &F::subscribe,
               .unsubscribe = &F::unsubscribe,
               .enable_callback = &F::enable_callback,
               .get_callback_name = &F::get_callback_name,
               .get_timestamp = &F::get_timestamp,
               .get_graph_node_id = &F::get_graph_node_id,
               .set_thread_id_type = &F::set_thread_id_type,
               .set_attribute = &F::set_attribute,
               .register_callbacks = &F::register_callbacks,
               .enable = &F::enable,
               .disable = &F::disable,
               .enable_runtime_api = &F::enable_runtime_api,
               .enable_driver_api = &F::enable_driver_api,
               .flush_all = &F::flush_all,
               .get_dropped = &F::get_dropped,
               .push_external = &F::push_external,
               .pop_external = &F::pop_external,
               .init = &F::init,
               .device_count = &F::device_count,
               .device_get = &F::device_get,
               .device_name = &F::device_name,
               .device_total_memory = &F::device_total_memory,
               .device_attribute = &F::device_attribute,
               .push_context = &F::push_context,
               .pop_context = &F::pop_context,
               .synchronize = &F::synchronize,
               .monotonic_ns = &F::monotonic_ns,
               .realtime_ns = &F::realtime_ns};
  if (faults.no_driver) {
    api.init = nullptr;
    api.why_no_driver = "libcuda.so.1: cannot open shared object file";
  }
  if (faults.no_library) {
    api.get_version = nullptr;
    api.why_no_cupti = "libcupti.so.13: cannot open shared object file";
  }
  return api;
}

}  // namespace warpstep::profiler::testing
