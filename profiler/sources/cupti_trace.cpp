#include "profiler/sources/cupti_trace.h"

#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/core/thread.h"
#include "profiler/sources/cupti_clock.h"

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
  } catch (...) {  // without memory for the queue the buffer and its records are lost
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
  std::memset(buffer.memory, 0, limits_.bytes);  // here, not on a thread of the training
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

struct KindToRecord {
  CUpti_ActivityKind kind;
  const char* what;
};
// Never KERNEL, which serialises kernels.
constexpr std::array<KindToRecord, 8> kinds_to_record{{
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, "The calls that launches belong to"},
    {CUPTI_ACTIVITY_KIND_RUNTIME, "Calls of the runtime"},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "Kernels"},
    {CUPTI_ACTIVITY_KIND_MEMCPY, "Copies"},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, "Copies between devices"},
    {CUPTI_ACTIVITY_KIND_MEMSET, "Memory sets"},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "Waits for the device"},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, "The profiler's own overhead"},
}};

// Some libraries launch through the driver only.
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

std::atomic<Tracer*> attached{nullptr};

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
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

// Keeps exceptions away from the training: they become notes.
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

OpenedTrace refuse_trace(const std::string& why) {
  return {nullptr, "The GPU's activities are not recorded: " + why + "."};
}

}  // namespace

std::string Tracer::subscribe() {
  std::array<char, 2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
  CUpti_SubscriberParams parameters{};
  // That of 13.0, which knows no later field.
  parameters.structSize = CUPTI_CALLBACK_STRUCT_SIZE(CUpti_SubscriberParams, oldSubscriberSize);
  parameters.subscriberName = "warpstep";
  parameters.oldSubscriberName = holder.data();
  parameters.oldSubscriberSize = holder.size() - 1;
  const CUptiResult result = api_.subscribe(&subscriber_, &on_resource, this, &parameters);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    return fmt::format("CUPTI is held by {}; it serves only one tool, so run without the other",
                       holder[0] ? holder.data() : "another tool (nsys, ncu, cuda-gdb, ...)");
  if (result != CUPTI_SUCCESS) return explain_failure(api_, "cuptiSubscribe_v2", result);
  return {};
}

std::string Tracer::attach(const DeviceTraceOptions& options, std::vector<std::string>& missing) {
  if (std::string why = subscribe(); !why.empty()) return why;
  record_bytes_ = measure_record_bytes(api_);
  if (const std::string why = too_short_record(record_bytes_); !why.empty()) {
    api_.unsubscribe(subscriber_);
    return "libcupti's records are not those that it was made for: " + why;
  }
  const auto check = [&](const char* function, CUptiResult result, const char* consequence) {
    if (result != CUPTI_SUCCESS)
      missing.push_back(
          fmt::format("{}: {}", consequence, explain_failure(api_, function, result)));
    return result == CUPTI_SUCCESS;
  };
  for (const CUpti_CallbackId event : ResourceMap::events())
    if (!check("cuptiEnableCallback",
               api_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, event),
               "kernels of CUDA graphs are not assigned to calls"))
      break;
  check("cuptiSetThreadIdType", api_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM),
        "the threads of launches are unknown");
  // Without this CUPTI clears each buffer on the training thread.
  std::uint8_t zeroed = 1;
  std::size_t bytes = sizeof zeroed;
  check("cuptiActivitySetAttribute",
        api_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed),
        "recording costs more time");
  attached.store(this, std::memory_order_release);
  if (const CUptiResult result = api_.register_callbacks(&on_buffer_requested, &on_buffer_filled);
      result != CUPTI_SUCCESS) {
    detach();
    return explain_failure(api_, "cuptiActivityRegisterCallbacks", result);
  }
  if (!calls::follow(api_))
    missing.emplace_back("kernels are not assigned to calls: too many listeners to spans");
  if (options.dump.empty()) return {};
  try {
    std::uint32_t version = 0;
    api_.get_version(&version);
    auto dump = std::make_unique<DumpWriter>(options.dump, DumpLayout(version, record_bytes_));
    dump->write(query_devices(api_));
    dump_ = std::move(dump);
  } catch (const std::exception& error) {
    missing.push_back(fmt::format("activity buffers are not dumped: {}", error.what()));
  }
  return {};
}

void Tracer::detach() noexcept {
  try {
    end();
  } catch (...) {  // nobody needs its records any more
  }
  calls::ignore();
  api_.unsubscribe(subscriber_);
  dump_.reset();
  Tracer* self = this;
  attached.compare_exchange_strong(self, nullptr);
}

void Tracer::begin() {
  if (in_window_) return;
  in_window_ = true;
  facts_ = {};
  parser_.emplace([this](TextOf of, std::uint64_t key) { return text_of(of, key); }, true,
                  record_bytes_);
  pool_.declined();
  dropped();  // losses between windows do not count
  enable_kinds();
  facts_.clocks.push_back(read_clocks(api_));
  stopping_ = false;
  pool_.stop_waiting(false);
  if (const std::string why = try_start_thread(reader_, "cupti", [this] { work(); }); !why.empty())
    facts_.notes.push_back(
        fmt::format("The GPU's records are read only at the end of the window: {}.", why));
  calls::push_to_cupti(true);
}

void Tracer::enable_kinds() {
  for (const auto& [kind, what] : kinds_to_record) {
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
  calls::push_to_cupti(false);
  std::vector<std::string> notes;
  // CUPTI returns a buffer when all of its records are complete. Launches by other threads during
  // the first flush are in the second one.
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
    notes.push_back(
        fmt::format("{} nodes of graphs are not assigned to calls: out of memory.", forgotten));
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
          "Waiting for the device failed (cuCtxSynchronize gave {}): records are missing.",
          static_cast<int>(result)));
  };
  const std::vector<CUcontext> contexts = resources_.contexts();
  if (contexts.empty()) {  // none since attach(), but this thread may have an older one
    const CUresult result = api_.synchronize();
    if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_NOT_INITIALIZED) check(result);
  }
  for (CUcontext context : contexts) {
    if (api_.push_context(context) != CUDA_SUCCESS) continue;  // destroyed in the meantime
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
    auto read_at = Clock::now();
    while (!stopping_) {
      FilledBuffer buffer;
      if (pool_.next(buffer, settings_.between_readings)) read(buffer);
      if (Clock::now() - read_at < settings_.between_readings) continue;
      facts_.clocks.push_back(read_clocks(api_));
      read_at = Clock::now();
    }
  } catch (...) {  // no memory: end() reads the rest
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

OpenedTrace open_trace(const CuptiApi& api, const DeviceTraceOptions& options,
                       const TraceSettings& settings) {
  static std::mutex mutex;
  static auto& immortal = *new std::vector<std::unique_ptr<Tracer>>;
  const std::lock_guard lock(mutex);
  if (attached.load())
    return refuse_trace("this process records them already, which works only once at a time");
  if (const std::string why = why_no_device(api); !why.empty()) return refuse_trace(why);
  if (const std::string why = why_no_library(api); !why.empty()) return refuse_trace(why);
  auto tracer = std::make_unique<Tracer>(api, settings);
  std::vector<std::string> missing;
  if (const std::string why = tracer->attach(options, missing); !why.empty()) {
    immortal.push_back(std::move(tracer));
    return refuse_trace(why);
  }
  immortal.push_back(std::move(tracer));
  std::string why;
  for (const std::string& one : missing) why += (why.empty() ? "" : "; ") + one;
  if (!why.empty()) why = "The GPU's activities are recorded in part: " + why + ".";
  return {std::make_unique<CuptiTrace>(*immortal.back()), why};
}

OpenedTrace open_device_trace(const DeviceTraceOptions& options) {
  try {
    return open_trace(load_cupti_api(), options);
  } catch (const std::exception& error) {
    return refuse_trace(error.what());
  }
}

}  // namespace warpstep::profiler
