#include "profiler/sources/cupti_testing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace warpstep::profiler::testing {
namespace {

constexpr std::uint64_t realtime_ahead_ns = 1'700'000'000'000'000'000;

}  // namespace

std::uint64_t FakeCupti::device_now() const {
  const std::uint64_t now = monotonic_ns_;
  return realtime_ahead_ns + now + static_cast<std::uint64_t>(drift * static_cast<double>(now)) +
         static_cast<std::uint64_t>(set_by_ns_.load());
}

void FakeCupti::pass(std::uint64_t ns) {
  monotonic_ns_ += ns;
}
void FakeCupti::set_system_clock(std::int64_t by_ns) {
  set_by_ns_ += by_ns;
}

bool FakeCupti::get_buffer() {
  std::size_t records = 7;
  buffer_ = nullptr;
  used_ = buffer_bytes_ = 0;
  if (request_) request_(&buffer_, &buffer_bytes_, &records);
  if (!buffer_) return false;
  if (reinterpret_cast<std::uintptr_t>(buffer_) % 8 != 0) ++bad_buffers;
  if (std::any_of(buffer_, buffer_ + buffer_bytes_, [](std::uint8_t byte) { return byte != 0; }))
    ++dirty_buffers;
  return true;
}

void FakeCupti::deliver() {
  if (buffer_) complete_(nullptr, 0, std::exchange(buffer_, nullptr), buffer_bytes_, used_);
}

void FakeCupti::put(const void* record, std::size_t bytes) {
  // What later versions append means nothing to the reader.
  std::uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof kind);
  std::vector<std::uint8_t> longer(bytes + static_cast<std::size_t>(faults.longer[kind]), 0xee);
  std::memcpy(longer.data(), record, std::min(bytes, longer.size()));
  record = longer.data();
  bytes = longer.size();
  if (buffer_ && used_ + bytes > buffer_bytes_) deliver();
  if ((!buffer_ && !get_buffer()) || bytes > buffer_bytes_) {
    ++dropped_;
    return;
  }
  std::memcpy(buffer_ + used_, record, bytes);
  used_ += bytes;
}

void FakeCupti::put_externals(std::uint32_t correlation) {
  if (pushed_externals().empty() || !enabled_.contains(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION))
    return;
  CUpti_ActivityExternalCorrelation record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  record.externalId = pushed_externals().back();
  record.correlationId = correlation;
  put(&record, sizeof record);
}

void FakeCupti::put_call(CUpti_ActivityKind kind, CUpti_CallbackId id, std::uint32_t correlation) {
  const bool of_runtime = kind == CUPTI_ACTIVITY_KIND_RUNTIME;
  if (of_runtime ? !enabled_.contains(kind) || silent_runtime_.contains(id) : !driver_.contains(id))
    return;
  if (!faults.odd_order) put_externals(correlation);
  CUpti_ActivityAPI record{};
  record.kind = kind;
  record.cbid = id;
  record.start = device_now();
  record.end = record.start + 200;
  record.processId = static_cast<std::uint32_t>(::getpid());
  record.threadId = system_threads_ ? static_cast<std::uint32_t>(::gettid()) : 0xdeadbeef;
  record.correlationId = correlation;
  put(&record, sizeof record);
  if (faults.odd_order) put_externals(correlation);
}

void FakeCupti::put_kernel(const char* name, std::uint32_t stream, std::uint32_t correlation,
                           std::uint64_t node, std::uint64_t lasts_ns) {
  if (!enabled_.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = faults.no_times ? 0 : device_now() + 300;
  record.end = faults.no_times ? 0 : record.start + lasts_ns;
  record.deviceId = 0;
  record.contextId = 1;
  record.streamId = stream;
  record.correlationId = correlation;
  record.gridX = 132;
  record.gridY = 2;
  record.gridZ = 1;
  record.blockX = 256;
  record.blockY = record.blockZ = 1;
  record.registersPerThread = 64;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 65536;
  record.name = name;
  record.graphNodeId = node;
  record.graphId = static_cast<std::uint32_t>(node >> 32);
  put(&record, sizeof record);
}

std::uint32_t FakeCupti::launch(const Launch& what) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  if (faults.odd_order) put_kernel(what.kernel, what.stream, correlation, 0, what.lasts_ns);
  if (what.by_driver)
    put_call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, correlation);
  if (what.by_runtime)
    put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
             correlation);
  if (!faults.odd_order) put_kernel(what.kernel, what.stream, correlation, 0, what.lasts_ns);
  pass(what.lasts_ns + 1000);
  return correlation;
}

std::uint32_t FakeCupti::copy(std::uint8_t kind, std::uint8_t from, std::uint8_t to,
                              std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
           correlation);
  CUpti_ActivityMemcpy6 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = kind;
  record.srcKind = from;
  record.dstKind = to;
  record.bytes = bytes;
  record.start = device_now() + 300;
  record.end = record.start + bytes / 50;
  record.contextId = 1;
  record.streamId = 8;
  record.correlationId = correlation;
  if (enabled_.contains(record.kind)) put(&record, sizeof record);
  pass(bytes / 50 + 1000);
  return correlation;
}

std::uint32_t FakeCupti::copy_between_devices(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000,
           correlation);
  CUpti_ActivityMemcpyPtoP4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  record.srcKind = record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.bytes = bytes;
  record.start = device_now() + 300;
  record.end = record.start + bytes / 100;
  record.streamId = 9;
  record.srcDeviceId = 0;
  record.dstDeviceId = 1;
  record.correlationId = correlation;
  if (enabled_.contains(record.kind)) put(&record, sizeof record);
  pass(bytes / 100 + 1000);
  return correlation;
}

std::uint32_t FakeCupti::set(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
           correlation);
  CUpti_ActivityMemset4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.bytes = bytes;
  record.start = device_now() + 300;
  record.end = record.start + 500;
  record.streamId = 7;
  record.correlationId = correlation;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  if (enabled_.contains(record.kind)) put(&record, sizeof record);
  pass(1500);
  return correlation;
}

std::uint32_t FakeCupti::synchronize_stream() {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
           correlation);
  CUpti_ActivitySynchronization2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  record.start = device_now();
  record.end = record.start + 150;
  record.contextId = 1;
  record.streamId = 7;
  record.correlationId = correlation;
  if (enabled_.contains(record.kind)) put(&record, sizeof record);
  pass(1000);
  return correlation;
}

void FakeCupti::stream_wait() {
  const std::lock_guard lock(mutex_);
  CUpti_ActivitySynchronization2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  record.start = device_now();
  record.end = record.start + 150;
  if (enabled_.contains(record.kind)) put(&record, sizeof record);
}

std::uint32_t FakeCupti::call(CUpti_CallbackId runtime_call) {
  const std::lock_guard lock(mutex_);
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, runtime_call, next_correlation_);
  pass(500);
  return next_correlation_++;
}

// The functions of the table.

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
  // As the library steps.
  static CUptiResult next_record(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
    const auto length = [](const std::uint8_t* at) -> std::ptrdiff_t {
      std::uint32_t kind = 0;
      std::memcpy(&kind, at, sizeof kind);
      const auto& known = oldest_record_bytes();
      if (kind >= known.size() || known[kind] == 0) return 0;
      return known[kind] + current->faults.longer[kind];
    };
    auto* at = *record ? reinterpret_cast<std::uint8_t*>(*record) : buffer;
    if (length(at) == 0) return CUPTI_ERROR_INVALID_KIND;
    if (*record) at += length(at);
    if (at + length(at) > buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(at);
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
               .next_record = &F::next_record,
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

// Graphs, contexts, and CUPTI's own activities.

void FakeCupti::notify(CUpti_CallbackId event, const void* data) {
  if (callback_ && callbacks_.contains(event))
    callback_(callback_data_, CUPTI_CB_DOMAIN_RESOURCE, event, data);
}

void FakeCupti::report_graph(CUpti_CallbackId event, FakeNode* node, FakeNode* original) {
  CUpti_GraphData graph{};
  graph.node = reinterpret_cast<CUgraphNode>(node);
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph;
  notify(event, &data);
}

void FakeCupti::capture(FakeGraph& graph, const char* kernel) {
  graph.nodes.push_back(std::make_unique<FakeNode>(FakeNode{next_node_++, kernel}));
  report_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, graph.nodes.back().get(), nullptr);
}

FakeGraph FakeCupti::instantiate(const FakeGraph& graph) {
  next_node_ = ((next_node_ >> 32) + 1) << 32 | 1;  // the upper half is the graph
  FakeGraph executable;
  report_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, nullptr, nullptr);
  for (const auto& node : graph.nodes) {
    executable.nodes.push_back(std::make_unique<FakeNode>(FakeNode{next_node_++, node->kernel}));
    FakeNode* clone = executable.nodes.back().get();
    report_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, clone, nullptr);
    report_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, clone, node.get());
  }
  report_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, nullptr, nullptr);
  return executable;
}

void FakeCupti::update(FakeGraph& executable, const FakeGraph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    executable.nodes[i]->kernel = graph.nodes[i]->kernel;
    report_graph(CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED, executable.nodes[i].get(),
                 graph.nodes[i].get());
  }
}

std::uint32_t FakeCupti::launch(const FakeGraph& executable, std::uint32_t streams) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
           correlation);
  std::uint32_t stream = 0;
  for (const auto& node : executable.nodes) {
    if (faults.no_graphs) break;
    put_kernel(node->kernel, 7 + stream++ % streams, correlation, node->id, 700);
    pass(400);  // branches overlap
  }
  pass(1000);
  return correlation;
}

void FakeCupti::create_context(std::uintptr_t context) {
  CUpti_ResourceData data{};
  data.context = reinterpret_cast<CUcontext>(context);
  notify(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &data);
}

void FakeCupti::destroy_context(std::uintptr_t context) {
  CUpti_ResourceData data{};
  data.context = reinterpret_cast<CUcontext>(context);
  notify(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, &data);
}

void FakeCupti::overhead(CUpti_ActivityOverheadKind kind) {
  const std::lock_guard lock(mutex_);
  CUpti_ActivityOverhead3 record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = kind;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.threadId = 77;
  record.start = device_now();
  record.end = record.start + 900;
  if (kind == CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL)  // its reader frees it
    record.overheadData = std::calloc(1, sizeof(CUpti_ActivityOverheadCommandBufferFullData));
  if (enabled_.contains(record.kind))
    put(&record, sizeof record);
  else
    std::free(record.overheadData);
  pass(1000);
}

void FakeCupti::whole_graph(std::uint32_t graph) {
  const std::lock_guard lock(mutex_);
  CUpti_ActivityGraphTrace2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  record.start = device_now();
  record.end = record.start + 5000;
  record.graphId = graph;
  record.streamId = 7;
  record.correlationId = next_correlation_++;
  put(&record, sizeof record);
  pass(6000);
}

bool FakeCupti::any_enabled() {
  const std::lock_guard lock(mutex_);
  return !enabled_.empty() || !driver_.empty();
}

}  // namespace warpstep::profiler::testing
