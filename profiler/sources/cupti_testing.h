// A simulation of CUPTI and the driver for tests: work on the device becomes records in CUPTI's own
// structures, and each function can fail.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/sources/cupti_api.h"
#include "profiler/sources/cupti_parse.h"

namespace warpstep::profiler::testing {

struct FakeNode {
  std::uint64_t id = 0;
  const char* kernel = nullptr;
};
struct FakeGraph {
  std::vector<std::unique_ptr<FakeNode>> nodes;
};

// The faults to inject; set them before the call that should fail.
struct Faults {
  bool no_driver = false, no_device = false, no_library = false;
  std::uint32_t version = CUPTI_API_VERSION;
  std::map<std::uint32_t, int> longer;  // by kind: bytes more in each record than in 13.0
  CUptiResult subscribe = CUPTI_SUCCESS;
  std::string holder;  // of CUPTI
  CUptiResult register_callbacks = CUPTI_SUCCESS, enable_callback = CUPTI_SUCCESS;
  CUptiResult set_attribute = CUPTI_SUCCESS, set_thread_id_type = CUPTI_SUCCESS;
  std::map<CUpti_ActivityKind, CUptiResult> enable;
  CUptiResult flush = CUPTI_SUCCESS, callback_name = CUPTI_SUCCESS, timestamp = CUPTI_SUCCESS;
  CUresult synchronize = CUDA_SUCCESS;
  bool no_times = false;    // of kernels
  bool no_graphs = false;   // no records of what runs in them
  bool odd_order = false;   // the kernel's record before its launch's, and before the external one
  bool hold_back = false;   // a flush gives nothing: a record is not complete
  std::size_t dropped = 0;  // besides those that found no buffer
};

// Why this machine's own driver offers no GPU, in the words of a refusal; empty if it does.
std::string why_no_gpu_here();

// Why no function of this machine's own CUPTI may be called; empty if they may. From 13.2 on they
// fail without a driver, those of 13.2 by calling each other without end.
std::string why_cupti_cannot_be_asked(const CuptiApi& api);

// Pushed on this thread and not popped.
const std::vector<std::uint64_t>& pushed_externals();

// The functions of api() reach the last one that was created. It has a simulated clock, which every
// event advances.
class FakeCupti {
 public:
  FakeCupti();
  ~FakeCupti();
  FakeCupti(const FakeCupti&) = delete;
  FakeCupti& operator=(const FakeCupti&) = delete;

  CuptiApi api() const;
  Faults faults;

  struct Launch {
    const char* kernel = "_Z4gemmPfi";
    std::uint32_t stream = 7;
    bool by_runtime = true, by_driver = false;
    std::uint64_t lasts_ns = 1000;
  };
  std::uint32_t launch(const Launch& launch);  // the correlation, as of the following
  std::uint32_t launch(const char* kernel) { return launch(Launch{.kernel = kernel}); }
  std::uint32_t copy(std::uint8_t kind, std::uint8_t from, std::uint8_t to, std::uint64_t bytes);
  std::uint32_t copy_between_devices(std::uint64_t bytes);
  std::uint32_t set(std::uint64_t bytes);
  std::uint32_t synchronize_stream();
  std::uint32_t call(CUpti_CallbackId runtime_call);  // and nothing on the device
  void stream_wait();                                 // for an event
  void overhead(CUpti_ActivityOverheadKind kind);
  void whole_graph(std::uint32_t graph);
  template <class Record>
  void put_raw(const Record& record) {
    const std::lock_guard lock(mutex_);
    put(&record, sizeof record);
  }

  void capture(FakeGraph& graph, const char* kernel);
  FakeGraph instantiate(const FakeGraph& graph);
  void update(FakeGraph& executable, const FakeGraph& graph);
  std::uint32_t launch(const FakeGraph& executable, std::uint32_t streams = 2);
  void create_context(std::uintptr_t context);
  void destroy_context(std::uintptr_t context);

  void pass(std::uint64_t ns);                // time
  void set_system_clock(std::int64_t by_ns);  // as NTP does
  std::uint64_t monotonic_ns() const { return monotonic_ns_; }
  double drift = 0;  // of CUPTI's clock

  bool any_enabled();  // kind, or call of the driver
  std::vector<CUcontext> synchronized;
  int subscriptions = 0;  // now
  int dirty_buffers = 0;  // given, but not zeroed
  int bad_buffers = 0;    // not aligned

 private:
  struct Functions;
  friend struct Functions;

  void put(const void* record, std::size_t bytes);
  bool get_buffer();
  void deliver();
  std::uint64_t device_now() const;
  void put_call(CUpti_ActivityKind kind, CUpti_CallbackId id, std::uint32_t correlation);
  void put_externals(std::uint32_t correlation);
  void put_kernel(const char* name, std::uint32_t stream, std::uint32_t correlation,
                  std::uint64_t node, std::uint64_t lasts_ns);
  void notify(CUpti_CallbackId event, const void* data);
  void report_graph(CUpti_CallbackId event, FakeNode* node, FakeNode* original);

  std::recursive_mutex mutex_;
  CUpti_CallbackFunc callback_ = nullptr;
  void* callback_data_ = nullptr;
  std::set<CUpti_CallbackId> callbacks_;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::set<CUpti_ActivityKind> enabled_;
  std::set<CUpti_CallbackId> silent_runtime_, driver_;
  bool system_threads_ = false;
  std::uint8_t* buffer_ = nullptr;
  std::size_t buffer_bytes_ = 0, used_ = 0;
  std::size_t dropped_ = 0;
  std::uint32_t next_correlation_ = 100;
  std::uint64_t next_node_ = (std::uint64_t{1} << 32) + 1;
  std::atomic<std::uint64_t> monotonic_ns_{5'000'000'000};
  std::atomic<std::int64_t> set_by_ns_{0};
  CUcontext current_ = nullptr;
};

// CUPTI's records for tests of the parser.

using Bytes = std::vector<std::byte>;

template <class Record>
void put(Bytes& to, const Record& record) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

inline std::string text_of(TextOf of, std::uint64_t key) {
  if (of == TextOf::kernel) return key ? reinterpret_cast<const char*>(key) : "unknown";
  return of == TextOf::runtime ? "cudaLaunchKernel_ptsz_v7000" : "cuLaunchKernel";
}

inline Parsed parse(const Bytes& buffer,
                    const std::unordered_map<std::uint64_t, std::uint64_t>& calls = {}) {
  Parser parser(text_of, false);
  parser.take(buffer);
  return parser.finish(calls);
}

inline CUpti_ActivityKernel10 kernel(std::uint64_t start, std::uint64_t end,
                                     std::uint32_t correlation) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = start;
  record.end = end;
  record.correlationId = correlation;
  record.name = "_Z4gemmPfi";
  return record;
}

inline CUpti_ActivityAPI call(CUpti_ActivityKind kind, std::uint32_t id, std::uint64_t start,
                              std::uint32_t correlation) {
  CUpti_ActivityAPI record{};
  record.kind = kind;
  record.cbid = id;
  record.start = start;
  record.end = start + 10;
  record.threadId = 4242;
  record.correlationId = correlation;
  return record;
}

inline CUpti_ActivityExternalCorrelation external(std::uint64_t id, std::uint32_t correlation) {
  CUpti_ActivityExternalCorrelation record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  record.externalId = id;
  record.correlationId = correlation;
  return record;
}

constexpr auto runtime = CUPTI_ACTIVITY_KIND_RUNTIME;
constexpr auto driver = CUPTI_ACTIVITY_KIND_DRIVER;
constexpr std::uint32_t launch_call = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;

}  // namespace warpstep::profiler::testing
