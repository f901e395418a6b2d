#include "profiler/sources/cupti_trace.h"

#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "engine/core/record.h"
#include "engine/core/thread.h"
#include "profiler/sources/cupti_calls.h"
#include "profiler/sources/cupti_clock.h"
#include "profiler/sources/cupti_parse.h"

namespace warpstep::profiler {
namespace {

// How far a device's time may be off from the host's: what ended earlier than this before a window
// began is of a buffer that CUPTI had held back.
constexpr std::uint64_t tolerance_ns = 1'000'000;

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

Traced assemble(Parser& parser, const WindowFacts& facts) {
  Parsed parsed = parser.finish(facts.calls);
  Traced traced{.activities = std::move(parsed.activities),
                .graph_nodes = sorted_nodes(facts.calls),
                .clocks = facts.clocks,
                .notes = facts.notes};
  std::uint64_t late = 0;
  if (!facts.clocks.empty()) {
    const ClockMap map(facts.clocks);
    late = put_on_our_clock(traced.activities, map, facts.clocks.front().monotonic_ns);
    if (map.set_by_ns() != 0)
      traced.notes.push_back(fmt::format(
          "The system's clock was set by {:.3f} ms in the window; times of the device are that far "
          "off where it happened.",
          static_cast<double>(map.set_by_ns()) * 1e-6));
  }
  traced.losses.activities = facts.dropped + parsed.unread_parts + late;
  traced.losses.without_times = parsed.without_times;
  if (facts.dropped != 0)
    traced.notes.push_back(fmt::format("CUPTI dropped {} records.", facts.dropped));
  if (parsed.unread_parts != 0)
    traced.notes.push_back(
        fmt::format("{} bytes of CUPTI's records, in {} buffers, are of no kind that is known.",
                    parsed.unread_bytes, parsed.unread_parts));
  if (parsed.without_times != 0)
    traced.notes.push_back(
        fmt::format("{} activities have no times: the device had no memory left for them.",
                    parsed.without_times));
  if (late != 0)
    traced.notes.push_back(fmt::format("{} records of an earlier window came too late.", late));
  return traced;
}

// The second half of the parser: what only the whole window's records tell.

namespace {

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

bool is_before(const Activity& a, const Activity& b) {
  const auto key = [](const Activity& activity) {
    return std::tuple(activity.start_ns, activity.end_ns, activity.what, activity.correlation,
                      activity.graph_node, activity.stream);
  };
  return key(a) < key(b);
}

// The first of each correlation.
void keep_one_call_each(std::vector<Activity>& activities) {
  std::unordered_set<std::uint32_t> seen;
  std::erase_if(activities, [&](const Activity& activity) {
    return activity.what == What::api && activity.correlation != 0 &&
           !seen.insert(activity.correlation).second;
  });
}

}  // namespace

std::span<const std::uint32_t> noisy_runtime_calls() {
  return noisy_calls;
}

Parsed Parser::finish(const std::unordered_map<std::uint64_t, std::uint64_t>& call_of) {
  std::vector<Activity>& activities = parsed_.activities;
  // Behind the runtime's own: the driver's counts only where the runtime has none.
  activities.insert(activities.end(), driver_calls_.begin(), driver_calls_.end());
  keep_one_call_each(activities);

  std::unordered_map<std::uint32_t, std::uint32_t> threads;  // by correlation
  for (const Activity& activity : activities)
    if (activity.what == What::api) threads.emplace(activity.correlation, activity.stream);
  for (Activity& activity : activities) {
    if (activity.what == What::sync && threads.contains(activity.correlation))
      activity.stream = threads[activity.correlation];
    // All of a graph have its launch's correlation; which call one came from, its node tells.
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

struct Wanted {
  CUpti_ActivityKind kind;
  const char* what;
};
// Never KERNEL, which makes kernels run one after another.
constexpr std::array<Wanted, 8> wanted_kinds{{
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, "The calls that launches belong to"},
    {CUPTI_ACTIVITY_KIND_RUNTIME, "Calls of the runtime"},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "Kernels"},
    {CUPTI_ACTIVITY_KIND_MEMCPY, "Copies"},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, "Copies between devices"},
    {CUPTI_ACTIVITY_KIND_MEMSET, "Memory sets"},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "Waits for the device"},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, "The profiler's own overhead"},
}};

// Some libraries launch through the driver alone.
constexpr std::array<CUpti_CallbackId, 8> driver_launches{
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

}  // namespace

void Tracer::begin() {
  if (in_window_) return;
  in_window_ = true;
  facts_ = {};
  parser_.emplace([this](TextOf of, std::uint64_t key) { return text_of(of, key); }, true);
  pool_.declined();
  dropped();  // what is lost between windows is nobody's
  enable_kinds();
  facts_.clocks.push_back(read_clocks(api_));
  stopping_ = false;
  pool_.stop_waiting(false);
  try {
    const SignalsBlocked blocked;  // no handler may run in it
    reader_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // then end() reads what there is room for
    facts_.notes.emplace_back("No thread could be started to read the GPU's records.");
  }
  calls::tell_cupti(true);
}

void Tracer::enable_kinds() {
  for (const auto& [kind, what] : wanted_kinds) {
    const CUptiResult result = api_.enable(kind);
    if (result == CUPTI_SUCCESS)
      enabled_.push_back(kind);
    else
      facts_.notes.push_back(fmt::format("{} are not recorded: {}.", what,
                                         explain_failure(api_, "cuptiActivityEnable", result)));
  }
  for (const std::uint32_t call : noisy_runtime_calls()) api_.enable_runtime_api(call, 0);
  for (const CUpti_CallbackId call : driver_launches) api_.enable_driver_api(call, 1);
}

void Tracer::disable_kinds() {
  for (const CUpti_CallbackId call : driver_launches) api_.enable_driver_api(call, 0);
  for (const CUpti_ActivityKind kind : enabled_) api_.disable(kind);
  enabled_.clear();
}

Traced Tracer::end() {
  if (!std::exchange(in_window_, false)) return {};
  calls::tell_cupti(false);
  std::vector<std::string> notes;
  // CUPTI gives back a buffer when all of its records are complete. What another thread launched
  // since is in the second flush.
  synchronize(notes);
  flush(notes);
  disable_kinds();
  flush(notes);
  stopping_ = true;
  pool_.stop_waiting(true);
  if (reader_.joinable()) reader_.join();
  drain();
  facts_.clocks.push_back(read_clocks(api_));
  facts_.dropped += dropped();
  facts_.calls = resources_.calls();
  if (const std::uint64_t declined = pool_.declined())
    notes.push_back(fmt::format("CUPTI asked {} times for more buffers than {} of {} MiB.",
                                declined, settings_.buffers.count,
                                static_cast<double>(settings_.buffers.bytes) / (1 << 20)));
  if (const std::uint64_t forgotten = resources_.forgotten())
    notes.push_back(fmt::format("{} nodes of graphs are not known by call: no memory.", forgotten));
  facts_.notes.insert(facts_.notes.end(), notes.begin(), notes.end());
  Traced traced = assemble(*parser_, facts_);
  finish_dump(traced);
  parser_.reset();
  return traced;
}

void Tracer::synchronize(std::vector<std::string>& notes) {
  const auto check = [&](CUresult result) {
    if (result != CUDA_SUCCESS)
      notes.push_back(fmt::format(
          "The device could not be waited for (cuCtxSynchronize gave {}): records are missing.",
          static_cast<int>(result)));
  };
  const std::vector<CUcontext> contexts = resources_.contexts();
  if (contexts.empty()) {  // none was made since CUPTI is held, but this thread may have an older
    const CUresult result = api_.synchronize();
    if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_NOT_INITIALIZED) check(result);
  }
  for (CUcontext context : contexts) {
    if (api_.push_context(context) != CUDA_SUCCESS) continue;  // destroyed meanwhile
    check(api_.synchronize());
    CUcontext popped = nullptr;
    api_.pop_context(&popped);
  }
}

void Tracer::flush(std::vector<std::string>& notes) {
  const CUptiResult result = api_.flush_all(0);
  if (result != CUPTI_SUCCESS)
    notes.push_back(fmt::format("Records are missing: {}.",
                                explain_failure(api_, "cuptiActivityFlushAll", result)));
}

std::uint64_t Tracer::dropped() {
  std::size_t count = 0;
  return api_.get_dropped(nullptr, 0, &count) == CUPTI_SUCCESS ? count : 0;
}

void Tracer::work() noexcept {
  using Clock = std::chrono::steady_clock;
  try {
    record::name_thread("cupti");
    auto read_at = Clock::now();
    while (!stopping_) {
      FilledBuffer buffer;
      if (pool_.next(buffer, settings_.between_readings)) read(buffer);
      if (Clock::now() - read_at < settings_.between_readings) continue;
      facts_.clocks.push_back(read_clocks(api_));
      read_at = Clock::now();
    }
  } catch (...) {  // no memory: end() reads what there is room for
  }
}

void Tracer::drain() noexcept {
  FilledBuffer buffer;
  while (pool_.next(buffer, std::chrono::milliseconds(0))) read(buffer);
}

void Tracer::read(const FilledBuffer& buffer) noexcept {
  const std::span records = std::as_bytes(std::span(buffer.memory, buffer.bytes));
  try {
    new_texts_.clear();
    parser_->take(records);
    write_dump(records);
  } catch (...) {  // no memory
    ++facts_.dropped;
  }
  pool_.recycle(buffer);
}

void Tracer::write_dump(std::span<const std::byte> records) {
  if (!dump_) return;
  try {
    dump_->write(new_texts_);
    dump_->write(records);
  } catch (const std::exception& error) {
    facts_.notes.push_back(
        fmt::format("The dump of activity buffers ends early: {}.", error.what()));
    dump_.reset();
  }
}

void Tracer::finish_dump(Traced& traced) {
  if (!dump_) return;
  try {
    dump_->finish(facts_);
  } catch (const std::exception& error) {
    traced.notes.push_back(
        fmt::format("The dump of activity buffers ends early: {}.", error.what()));
    dump_.reset();
  }
}

std::string Tracer::text_of(TextOf of, std::uint64_t key) {
  std::string text;
  if (of == TextOf::kernel) {
    const char* name = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(key));
    text = name ? name : "unknown kernel";
  } else {
    const bool of_runtime = of == TextOf::runtime;
    const char* name = nullptr;
    const CUptiResult result = api_.get_callback_name(
        of_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API,
        static_cast<std::uint32_t>(key), &name);
    text = result == CUPTI_SUCCESS && name
               ? name
               : fmt::format("{} call {}", of_runtime ? "runtime" : "driver", key);
  }
  if (dump_) new_texts_.push_back({of, key, text});
  return text;
}

}  // namespace warpstep::profiler
