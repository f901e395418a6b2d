// A process's subscription to CUPTI and its windows.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "profiler/sources/cupti_calls.h"
#include "profiler/sources/cupti_dump.h"
#include "profiler/sources/cupti_parse.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

struct TraceSettings {
  BufferLimits buffers;
  std::chrono::milliseconds between_readings{500};  // of the clocks, within a window
};

// open_device_trace() with any table.
OpenedTrace open_trace(const CuptiApi& api, const DeviceTraceOptions& options,
                       const TraceSettings& settings = {});

// Lives to the process's end once it has subscribed: CUPTI's threads may call it late.
class Tracer {
 public:
  Tracer(const CuptiApi& api, const TraceSettings& settings)
      : api_(api), settings_(settings), resources_(api_), pool_(settings.buffers) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Subscribes, with callbacks for graphs, and gives why that is impossible. Nothing is recorded
  // yet. What works in part is told to `weaker`.
  std::string attach(const DeviceTraceOptions& options, std::vector<std::string>& weaker);
  void detach() noexcept;

  void begin();
  Traced end();

  BufferPool& pool() { return pool_; }
  ResourceMap& resources() { return resources_; }

 private:
  std::string subscribe();
  void enable_kinds();
  void disable_kinds();
  void synchronize(std::vector<std::string>& notes);
  void flush(std::vector<std::string>& notes);
  std::uint64_t dropped();
  void work() noexcept;
  void drain() noexcept;
  void read(const FilledBuffer& buffer) noexcept;
  void write_dump(std::span<const std::byte> records);
  void finish_dump(Traced& traced);
  std::string text_of(TextOf of, std::uint64_t key);

  const CuptiApi api_;
  const TraceSettings settings_;
  ResourceMap resources_;
  BufferPool pool_;
  CUpti_SubscriberHandle subscriber_ = nullptr;

  // Of the window; the reading thread's while it runs.
  bool in_window_ = false;
  std::vector<CUpti_ActivityKind> enabled_;
  std::optional<Parser> parser_;
  WindowFacts facts_;
  std::unique_ptr<DumpWriter> dump_;
  std::vector<DumpedText> new_texts_;
  std::atomic<bool> stopping_{false};
  std::thread reader_;
};

}  // namespace warpstep::profiler
