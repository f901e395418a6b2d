// GPU tracing through CUPTI: the process's one subscription, the buffers that CUPTI fills, and
// windows.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "profiler/sources/cupti_calls.h"
#include "profiler/sources/cupti_dump.h"
#include "profiler/sources/cupti_parse.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

struct BufferLimits {
  std::size_t bytes = std::size_t{4} << 20;  // per buffer: ~15,000 launches
  std::size_t count = 32;                    // 128 MiB; beyond that CUPTI drops records and counts
};

// A buffer with records; its memory must return to the pool.
struct FilledBuffer {
  std::uint8_t* memory = nullptr;
  std::size_t bytes = 0;  // of records
};

// The memory that CUPTI fills with records: a few large buffers that are reused.
class BufferPool {
 public:
  explicit BufferPool(const BufferLimits& limits) : limits_(limits) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // CUPTI's side, called from its threads: zeroed memory, or null when all buffers are in use.
  std::uint8_t* give() noexcept;
  void take(std::uint8_t* memory, std::size_t bytes) noexcept;

  // The reader's side. False after `patience` without a buffer, or at once after
  // stop_waiting(true).
  bool next(FilledBuffer& buffer, std::chrono::milliseconds patience);
  void recycle(const FilledBuffer& buffer);
  void stop_waiting(bool stop);

  std::size_t bytes() const { return limits_.bytes; }
  std::uint64_t declined();  // requests without a buffer since the last call

 private:
  const BufferLimits limits_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<std::uint8_t*> spare_, all_;  // reserved, so that callbacks never allocate
  std::deque<FilledBuffer> full_;
  std::uint64_t declined_ = 0;
  bool stopped_ = false;
};

struct TraceSettings {
  BufferLimits buffers;
  std::chrono::milliseconds between_readings{500};  // of the clocks, within a window
};

// open_device_trace() with any table of functions.
OpenedTrace open_trace(const CuptiApi& api, const DeviceTraceOptions& options,
                       const TraceSettings& settings = {});

// Never destroyed once it has subscribed: CUPTI's threads may call it late.
class Tracer {
 public:
  Tracer(const CuptiApi& api, const TraceSettings& settings)
      : api_(api), settings_(settings), resources_(api_), pool_(settings.buffers) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Subscribes, with callbacks for graphs; records nothing yet. Returns why that is impossible;
  // empty on success. Features that do not work are added to `missing`.
  std::string attach(const DeviceTraceOptions& options, std::vector<std::string>& missing);
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

  // State of the window; used by the reading thread while it runs.
  bool in_window_ = false;
  RecordBytes record_bytes_{};
  std::vector<CUpti_ActivityKind> enabled_;
  std::optional<Parser> parser_;
  WindowFacts facts_;
  std::unique_ptr<DumpWriter> dump_;
  std::vector<DumpedText> new_texts_;
  std::atomic<bool> stopping_{false};
  std::thread reader_;
};

}  // namespace warpstep::profiler
