#include "profiler/sources/cupti_trace.h"

#include <fmt/format.h>

#include <array>
#include <system_error>
#include <utility>

#include "engine/core/record.h"
#include "engine/core/signals.h"
#include "profiler/sources/cupti_calls.h"
#include "profiler/sources/cupti_clock.h"

namespace warpstep::profiler {
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
