#include "profiler/sources/cupti_testing.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace warpstep::profiler::testing {
namespace {

constexpr std::uint64_t realtime_ahead_ns = 1'700'000'000'000'000'000;

}  // namespace

std::string why_no_gpu_here() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!driver) return fmt::format("there is no NVIDIA driver ({})", ::dlerror());
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(::dlsym(driver, "cuInit"));
  if (!init) return fmt::format("there is no NVIDIA driver ({})", ::dlerror());
  const CUresult result = init(0);
  if (result == CUDA_SUCCESS) return {};
  return fmt::format("the NVIDIA driver finds no GPU: cuInit gave {}", static_cast<int>(result));
}

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

}  // namespace warpstep::profiler::testing
