#include "profiler/sources/cupti_parse.h"

#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "profiler/sources/cupti_api.h"
#include "profiler/sources/cupti_clock.h"
#include "profiler/sources/cupti_names.h"

namespace warpstep::profiler {

namespace {

// The steps of CUPTI 13.0's cuptiActivityGetNextRecord through a buffer.
constexpr RecordBytes bytes_of_13_0{0,  96,  88, 216, 40,  40,  0,  0,  184, 32, 216, 32, 56, 40, 0,
                                    0,  0,   56, 144, 40,  40,  0,  96, 0,   0,  104, 32, 24, 24, 0,
                                    0,  0,   0,  152, 152, 120, 56, 24, 56,  24, 136, 0,  0,  0,  0,
                                    80, 168, 40, 40,  128, 80,  56, 72, 56,  64, 32};

// The records that are read, each up to the last field of 13.0.
struct KindToRead {
  CUpti_ActivityKind kind;
  std::size_t bytes;
  const char* name;
};
constexpr std::array<KindToRead, 11> kinds_to_read{{
    {CUPTI_ACTIVITY_KIND_KERNEL, sizeof(CUpti_ActivityKernel10), "serialised kernels"},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(CUpti_ActivityKernel10), "kernels"},
    {CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(CUpti_ActivityMemcpy6), "copies"},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(CUpti_ActivityMemcpyPtoP4), "copies between devices"},
    {CUPTI_ACTIVITY_KIND_MEMSET, sizeof(CUpti_ActivityMemset4), "memory sets"},
    {CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI), "calls of the runtime"},
    {CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI), "calls of the driver"},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof(CUpti_ActivityExternalCorrelation),
     "external correlations"},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sizeof(CUpti_ActivitySynchronization2), "waits"},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof(CUpti_ActivityOverhead3), "overhead"},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, sizeof(CUpti_ActivityGraphTrace2), "graphs"},
}};
static_assert(std::ranges::all_of(kinds_to_read, [](const KindToRead& read) {
  return bytes_of_13_0[read.kind] == read.bytes;
}));

constexpr std::array<std::uint32_t, 25> noisy_calls{
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetErrorString_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDeviceCount_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreate_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetPriority_v5050,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v10010,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v2_v11030,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v12030,
    CUPTI_RUNTIME_TRACE_CBID_cudaThreadExchangeStreamCaptureMode_v10010,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetFuncBySymbol_v11000,
    CUPTI_RUNTIME_TRACE_CBID___cudaPushCallConfiguration_v13000,
    CUPTI_RUNTIME_TRACE_CBID___cudaPopCallConfiguration_v13000,
};

template <class Record>
Record as(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

// The value of an enumeration, which may be one that the header does not define.
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

bool is_graph_launch(TextOf of, std::uint32_t call) {
  return of == TextOf::runtime ? call == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 ||
                                     call == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000
                               : call == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch ||
                                     call == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
}

bool is_before(const Activity& a, const Activity& b) {
  const auto key = [](const Activity& activity) {
    return std::tuple(activity.start_ns, activity.end_ns, activity.what, activity.correlation,
                      activity.graph_node, activity.stream);
  };
  return key(a) < key(b);
}

// Keeps the first call of each correlation.
void keep_one_call_each(std::vector<Activity>& activities) {
  std::unordered_set<std::uint32_t> seen;
  std::erase_if(activities, [&](const Activity& activity) {
    return activity.what == What::api && activity.correlation != 0 &&
           !seen.insert(activity.correlation).second;
  });
}

// The largest error between the device's and the host's time. An activity that ended earlier than
// this before the window comes from a buffer that CUPTI had held back.
constexpr std::uint64_t tolerance_ns = 1'000'000;

// Maps times to CLOCK_MONOTONIC and drops activities of earlier windows; returns their number.
std::uint64_t put_on_our_clock(std::vector<Activity>& activities, const ClockMap& map,
                               std::uint64_t begin_ns) {
  for (Activity& activity : activities) {
    activity.start_ns = map.to_monotonic(activity.start_ns);
    activity.end_ns = std::max(activity.start_ns, map.to_monotonic(activity.end_ns));
  }
  const std::uint64_t late = std::erase_if(activities, [&](const Activity& activity) {
    return activity.end_ns + tolerance_ns < begin_ns;
  });
  std::ranges::stable_sort(activities, {}, &Activity::start_ns);
  return late;
}

}  // namespace

const RecordBytes& oldest_record_bytes() {
  return bytes_of_13_0;
}

RecordBytes measure_record_bytes(const CuptiApi& api) {
  RecordBytes bytes{};
  alignas(8) std::array<std::uint8_t, 2048> buffer{};
  for (std::uint32_t kind = 0; kind < bytes.size(); ++kind) {
    // Records begin at multiples of 8 bytes: wherever the second one is, it is of this kind.
    for (std::size_t at = 0; at < buffer.size(); at += 8)
      std::memcpy(buffer.data() + at, &kind, sizeof kind);
    CUpti_Activity* record = nullptr;
    for (int step = 0; step < 2; ++step)
      if (api.next_record(buffer.data(), buffer.size(), &record) != CUPTI_SUCCESS) record = nullptr;
    if (record)
      bytes[kind] =
          static_cast<std::uint16_t>(reinterpret_cast<std::uint8_t*>(record) - buffer.data());
  }
  return bytes;
}

std::string too_short_record(const RecordBytes& bytes) {
  for (const KindToRead& read : kinds_to_read)
    if (bytes[read.kind] < read.bytes)
      return fmt::format("those of {} have {} bytes, expected at least {}", read.name,
                         bytes[read.kind], read.bytes);
  return {};
}

void Parser::take(std::span<const std::byte> buffer) {
  while (!buffer.empty()) {
    const std::uint32_t kind = buffer.size() < 4 ? 0 : number_at(buffer, 0);
    const std::size_t bytes = kind < record_bytes_.size() ? record_bytes_[kind] : 0;
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
    default: return;  // a kind that was not enabled
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
  if (is_graph_launch(of, record.cbid)) parsed_.graph_launches.insert(record.correlationId);
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
  // Here a stream waits, not the host.
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
  // The only kind that owns memory besides its record.
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

std::span<const std::uint32_t> noisy_runtime_calls() {
  return noisy_calls;
}

Parsed Parser::finish(const std::unordered_map<std::uint64_t, std::uint64_t>& call_of) {
  std::vector<Activity>& activities = parsed_.activities;
  // After the runtime's calls: a call of the driver counts only if the runtime has none.
  activities.insert(activities.end(), driver_calls_.begin(), driver_calls_.end());
  keep_one_call_each(activities);

  std::unordered_map<std::uint32_t, std::uint32_t> threads;  // by correlation
  for (const Activity& activity : activities)
    if (activity.what == What::api) threads.emplace(activity.correlation, activity.stream);
  for (Activity& activity : activities) {
    if (activity.what == What::sync && threads.contains(activity.correlation))
      activity.stream = threads[activity.correlation];
    // All activities of a graph have its launch's correlation; their node identifies the call.
    const auto call = call_of.find(activity.graph_node);
    if (activity.graph_node != 0 && call != call_of.end()) {
      activity.external = static_cast<std::uint32_t>(call->second + 1);
    } else if (activity.what != What::overhead) {
      const auto external = externals_.find(activity.correlation);
      if (external != externals_.end()) activity.external = external->second;
    }
  }
  std::stable_sort(activities.begin(), activities.end(), is_before);
  driver_calls_.clear();
  externals_.clear();
  return std::exchange(parsed_, {});
}

namespace {

// Launches of graphs without a record of their work. To be asked before records of other windows
// are dropped.
std::uint64_t silent_graph_launches(const Parsed& parsed) {
  std::unordered_set<std::uint32_t> silent = parsed.graph_launches;
  for (const Activity& activity : parsed.activities)
    if (is_on_device(activity)) silent.erase(activity.correlation);
  return silent.size();
}

}  // namespace

Traced assemble(Parser& parser, const WindowFacts& facts) {
  Parsed parsed = parser.finish(facts.calls);
  // Records that CUPTI dropped could be those of a launch's work.
  const std::uint64_t silent = facts.dropped == 0 ? silent_graph_launches(parsed) : 0;
  Traced traced{
      .activities = std::move(parsed.activities), .clocks = facts.clocks, .notes = facts.notes};
  std::uint64_t late = 0;
  if (!facts.clocks.empty()) {
    const ClockMap map(facts.clocks);
    late = put_on_our_clock(traced.activities, map, facts.clocks.front().monotonic_ns);
    if (map.set_by_ns() != 0)
      traced.notes.push_back(
          fmt::format("The system's clock was set by {:.3f} ms in the window; device times around "
                      "that moment are "
                      "wrong by as much.",
                      static_cast<double>(map.set_by_ns()) * 1e-6));
  }
  traced.losses.activities = facts.dropped + parsed.unread_parts + late + silent;
  traced.losses.without_times = parsed.without_times;
  if (facts.dropped != 0)
    traced.notes.push_back(fmt::format("CUPTI dropped {} records.", facts.dropped));
  if (parsed.unread_parts != 0)
    traced.notes.push_back(
        fmt::format("{} bytes of CUPTI's records, in {} buffers, are of an unknown kind.",
                    parsed.unread_bytes, parsed.unread_parts));
  if (parsed.without_times != 0)
    traced.notes.push_back(
        fmt::format("{} activities have no times: the device had no memory left for times.",
                    parsed.without_times));
  if (silent != 0)
    traced.notes.push_back(fmt::format(
        "{} of {} graph launches have no record of their work: this driver does not report graphs "
        "that were made before a window. Record with --profile deep --no-graph.",
        silent, parsed.graph_launches.size()));
  if (late != 0)
    traced.notes.push_back(fmt::format("{} records of an earlier window arrived too late.", late));
  return traced;
}

}  // namespace warpstep::profiler
