#include "profiler/sources/cupti_parse.h"

#include <cupti.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "profiler/sources/cupti_names.h"

namespace warpstep::profiler {

BufferPool::~BufferPool() {
  for (std::uint8_t* memory : all_) std::free(memory);
}

std::uint8_t* BufferPool::give() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      std::uint8_t* memory = spare_.back();
      spare_.pop_back();
      return memory;
    }
    if (all_.size() < limits_.count) {
      all_.reserve(limits_.count);
      spare_.reserve(limits_.count);
      if (auto* memory = static_cast<std::uint8_t*>(std::calloc(limits_.bytes, 1))) {
        all_.push_back(memory);
        return memory;
      }
    }
    ++declined_;
  } catch (...) {  // the caller is C
  }
  return nullptr;
}

void BufferPool::take(std::uint8_t* memory, std::size_t bytes) noexcept {
  if (!memory) return;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (bytes == 0)
        spare_.push_back(memory);
      else
        full_.push_back({memory, std::min(bytes, limits_.bytes)});
    }
    filled_.notify_one();
  } catch (...) {  // without memory for the queue the buffer's records are lost, and so is it
  }
}

bool BufferPool::next(FilledBuffer& buffer, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, patience, [&] { return stopped_ || !full_.empty(); });
  if (full_.empty()) return false;
  buffer = full_.front();
  full_.pop_front();
  return true;
}

void BufferPool::recycle(const FilledBuffer& buffer) {
  std::memset(buffer.memory, 0, limits_.bytes);  // here rather than on a thread of the training
  const std::lock_guard lock(mutex_);
  spare_.push_back(buffer.memory);
}

void BufferPool::stop_waiting(bool stop) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = stop;
  }
  filled_.notify_all();
}

std::uint64_t BufferPool::declined() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t count = declined_;
  declined_ = 0;
  return count;
}

namespace {

// By kind: as cuptiActivityGetNextRecord of CUPTI 13.0 steps through a buffer.
constexpr std::array<std::uint16_t, 56> bytes_by_kind{
    0,  96, 88,  216, 40, 40, 0,   0,  184, 32, 216, 32,  56, 40, 0,   0,   0,   56, 144,
    40, 40, 0,   96,  0,  0,  104, 32, 24,  24, 0,   0,   0,  0,  152, 152, 120, 56, 24,
    56, 24, 136, 0,   0,  0,  0,   80, 168, 40, 40,  128, 80, 56, 72,  56,  64,  32};
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] ==
              sizeof(CUpti_ActivityKernel10));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_MEMCPY] == sizeof(CUpti_ActivityMemcpy6));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_MEMCPY2] == sizeof(CUpti_ActivityMemcpyPtoP4));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_MEMSET] == sizeof(CUpti_ActivityMemset4));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_RUNTIME] == sizeof(CUpti_ActivityAPI));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] ==
              sizeof(CUpti_ActivityExternalCorrelation));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION] ==
              sizeof(CUpti_ActivitySynchronization2));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_OVERHEAD] == sizeof(CUpti_ActivityOverhead3));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_GRAPH_TRACE] == sizeof(CUpti_ActivityGraphTrace2));
static_assert(bytes_by_kind[CUPTI_ACTIVITY_KIND_DEVICE] == sizeof(CUpti_ActivityDevice5));
static_assert(sizeof(CUpti_ActivityKernel10) == 216 && sizeof(CUpti_ActivityMemcpy6) == 96 &&
              sizeof(CUpti_ActivityMemset4) == 88 && sizeof(CUpti_ActivityAPI) == 40);

template <class Record>
Record as(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

// Of an enumeration, which may hold what the header does not know.
std::uint32_t number_at(std::span<const std::byte> record, std::size_t at) {
  std::uint32_t number = 0;
  std::memcpy(&number, record.data() + at, sizeof number);
  return number;
}

template <class Record>
Activity copy_of(const Record& record) {
  Activity copy{.start_ns = record.start,
                .end_ns = record.end,
                .graph_node = record.graphNodeId,
                .bytes = record.bytes,
                .correlation = record.correlationId,
                .device = record.deviceId,
                .stream = record.streamId,
                .context = record.contextId,
                .graph = record.graphId,
                .what = What::copy,
                .copy_kind = record.copyKind,
                .source_memory = record.srcKind,
                .target_memory = record.dstKind};
  copy.name = name_copy(copy);
  return copy;
}

}  // namespace

std::size_t record_bytes(std::uint32_t kind) {
  return kind < bytes_by_kind.size() ? bytes_by_kind[kind] : 0;
}

void Parser::take(std::span<const std::byte> buffer) {
  while (!buffer.empty()) {
    const std::uint32_t kind = buffer.size() < 4 ? 0 : number_at(buffer, 0);
    const std::size_t bytes = record_bytes(kind);
    if (bytes == 0 || bytes > buffer.size()) {
      parsed_.unread_bytes += buffer.size();
      ++parsed_.unread_parts;
      return;
    }
    take_record(kind, buffer.first(bytes));
    buffer = buffer.subspan(bytes);
  }
}

void Parser::take_record(std::uint32_t kind, std::span<const std::byte> record) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return take_kernel(record);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return take_copy(record);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return take_peer_copy(record);
    case CUPTI_ACTIVITY_KIND_MEMSET: return take_set(record);
    case CUPTI_ACTIVITY_KIND_RUNTIME: return take_call(record, TextOf::runtime);
    case CUPTI_ACTIVITY_KIND_DRIVER: return take_call(record, TextOf::driver);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return take_external(record);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return take_sync(record);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return take_overhead(record);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return take_graph(record);
    default: return;  // of a kind that was not asked for
  }
}

void Parser::keep(std::vector<Activity>& into, const Activity& activity) {
  if (activity.start_ns == 0 || activity.end_ns < activity.start_ns)
    ++parsed_.without_times;
  else
    into.push_back(activity);
}

void Parser::take_kernel(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivityKernel10>(bytes);
  const auto size = [](std::int32_t extent) { return static_cast<std::uint32_t>(extent); };
  keep(parsed_.activities,
       {.start_ns = record.start,
        .end_ns = record.end,
        .graph_node = record.graphNodeId,
        .correlation = record.correlationId,
        .name = name_of(TextOf::kernel, reinterpret_cast<std::uintptr_t>(record.name)),
        .device = record.deviceId,
        .stream = record.streamId,
        .context = record.contextId,
        .graph = record.graphId,
        .smem_static = size(record.staticSharedMemory),
        .smem_dynamic = size(record.dynamicSharedMemory),
        .grid = {size(record.gridX), size(record.gridY), size(record.gridZ)},
        .block = {size(record.blockX), size(record.blockY), size(record.blockZ)},
        .registers = record.registersPerThread,
        .what = What::kernel});
}

void Parser::take_copy(std::span<const std::byte> bytes) {
  keep(parsed_.activities, copy_of(as<CUpti_ActivityMemcpy6>(bytes)));
}

void Parser::take_peer_copy(std::span<const std::byte> bytes) {
  keep(parsed_.activities, copy_of(as<CUpti_ActivityMemcpyPtoP4>(bytes)));
}

void Parser::take_set(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivityMemset4>(bytes);
  Activity set{.start_ns = record.start,
               .end_ns = record.end,
               .graph_node = record.graphNodeId,
               .bytes = record.bytes,
               .correlation = record.correlationId,
               .device = record.deviceId,
               .stream = record.streamId,
               .context = record.contextId,
               .graph = record.graphId,
               .what = What::set,
               .target_memory = static_cast<std::uint8_t>(record.memoryKind)};
  set.name = name_set(set);
  keep(parsed_.activities, set);
}

void Parser::take_call(std::span<const std::byte> bytes, TextOf of) {
  const auto record = as<CUpti_ActivityAPI>(bytes);
  const auto noisy = noisy_runtime_calls();
  if (of == TextOf::runtime && std::find(noisy.begin(), noisy.end(), record.cbid) != noisy.end())
    return;
  keep(of == TextOf::runtime ? parsed_.activities : driver_calls_,
       {.start_ns = record.start,
        .end_ns = record.end,
        .correlation = record.correlationId,
        .name = name_of(of, record.cbid),
        .stream = record.threadId,
        .what = What::api});
}

void Parser::take_external(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivityExternalCorrelation>(bytes);
  if (number_at(bytes, offsetof(CUpti_ActivityExternalCorrelation, externalKind)) ==
      CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
    externals_[record.correlationId] = static_cast<std::uint32_t>(record.externalId);
}

void Parser::take_sync(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivitySynchronization2>(bytes);
  const std::uint32_t type = number_at(bytes, offsetof(CUpti_ActivitySynchronization2, type));
  // There a stream waits, not the host.
  if (type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT) return;
  keep(parsed_.activities, {.start_ns = record.start,
                            .end_ns = record.end,
                            .correlation = record.correlationId,
                            .name = name_sync(type),
                            .context = record.contextId,
                            .what = What::sync});
}

void Parser::take_overhead(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivityOverhead3>(bytes);
  const std::uint32_t kind = number_at(bytes, offsetof(CUpti_ActivityOverhead3, overheadKind));
  // The only kind that comes with more than the record.
  if (frees_ && kind == CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL) std::free(record.overheadData);
  const bool of_thread = number_at(bytes, offsetof(CUpti_ActivityOverhead3, objectKind)) ==
                         CUPTI_ACTIVITY_OBJECT_THREAD;
  keep(parsed_.activities, {.start_ns = record.start,
                            .end_ns = record.end,
                            .correlation = record.correlationId,
                            .name = name_overhead(kind),
                            .stream = of_thread ? record.objectId.pt.threadId : 0,
                            .what = What::overhead});
}

void Parser::take_graph(std::span<const std::byte> bytes) {
  const auto record = as<CUpti_ActivityGraphTrace2>(bytes);
  keep(parsed_.activities, {.start_ns = record.start,
                            .end_ns = record.end,
                            .correlation = record.correlationId,
                            .name = name_graph(),
                            .device = record.deviceId,
                            .stream = record.streamId,
                            .context = record.contextId,
                            .graph = record.graphId,
                            .what = What::graph});
}

std::uint32_t Parser::name_of(TextOf of, std::uint64_t key) {
  auto& names = names_[static_cast<std::size_t>(of)];
  const auto at = names.find(key);
  if (at != names.end()) return at->second;
  const std::string text = text_(of, key);
  const std::uint32_t name = of == TextOf::kernel ? name_kernel(text) : name_call(text);
  names.emplace(key, name);
  return name;
}

}  // namespace warpstep::profiler
