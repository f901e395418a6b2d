// From CUPTI's records to our own: everything that depends on how records are laid out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

// The memory that CUPTI fills with records: a few large buffers that go round.

struct BufferLimits {
  std::size_t bytes = std::size_t{4} << 20;  // of a buffer: ~15,000 launches
  std::size_t count = 32;                    // 128 MiB, then CUPTI drops and counts
};

// A buffer with records; its memory goes back to the pool.
struct FilledBuffer {
  std::uint8_t* memory = nullptr;
  std::size_t bytes = 0;  // of records
};

class BufferPool {
 public:
  explicit BufferPool(const BufferLimits& limits) : limits_(limits) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // CUPTI's side, called from its threads: zeroed memory, or null when there are enough.
  std::uint8_t* give() noexcept;
  void take(std::uint8_t* memory, std::size_t bytes) noexcept;

  // The reader's side. False after `patience` without a buffer, or at once when nobody is to wait.
  bool next(FilledBuffer& buffer, std::chrono::milliseconds patience);
  void recycle(const FilledBuffer& buffer);
  void stop_waiting(bool stop);  // until the other is said

  std::size_t bytes() const { return limits_.bytes; }
  std::uint64_t declined();  // requests since the last call

 private:
  const BufferLimits limits_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<std::uint8_t*> spare_, all_;  // with room for all, so that callbacks only move
  std::deque<FilledBuffer> full_;
  std::uint64_t declined_ = 0;
  bool stopped_ = false;
};

// Bytes of a record in CUPTI 13.0's buffers; 0 for a kind that it does not have.
std::size_t record_bytes(std::uint32_t kind);

// Calls of the runtime that happen often and take no time worth a record: cudaGetLastError, ...
std::span<const std::uint32_t> noisy_runtime_calls();

// A text that a record stands for but does not hold.
enum class TextOf : std::uint32_t {
  kernel,   // key: where CUPTI keeps the mangled name
  runtime,  // key: the call's number
  driver,
};
using TextSource = std::function<std::string(TextOf of, std::uint64_t key)>;

struct Parsed {
  std::vector<Activity> activities;  // by start; times in CUPTI's clock
  std::uint64_t without_times = 0;
  std::uint64_t unread_bytes = 0;  // behind what could not be understood
  std::uint64_t unread_parts = 0;  // so many buffers, each a record lost at least
};

class Parser {
 public:
  // `text` is asked once for each key. Records that CUPTI made in this process own memory, which
  // `frees` frees; those of a dump do not.
  Parser(TextSource text, bool frees) : text_(std::move(text)), frees_(frees) {}

  // The records of a buffer, which may end anywhere.
  void take(std::span<const std::byte> buffer);
  // Joins what was taken: calls to their launches, one launch a correlation. `call_of` gives the
  // call that a graph's node came from.
  Parsed finish(const std::unordered_map<std::uint64_t, std::uint64_t>& call_of);

 private:
  void take_record(std::uint32_t kind, std::span<const std::byte> record);
  void take_kernel(std::span<const std::byte> record);
  void take_copy(std::span<const std::byte> record);
  void take_peer_copy(std::span<const std::byte> record);
  void take_set(std::span<const std::byte> record);
  void take_call(std::span<const std::byte> record, TextOf of);
  void take_external(std::span<const std::byte> record);
  void take_sync(std::span<const std::byte> record);
  void take_overhead(std::span<const std::byte> record);
  void take_graph(std::span<const std::byte> record);
  void keep(std::vector<Activity>& into, const Activity& activity);
  std::uint32_t name_of(TextOf of, std::uint64_t key);

  TextSource text_;
  bool frees_;
  Parsed parsed_;
  std::vector<Activity> driver_calls_;
  std::unordered_map<std::uint32_t, std::uint32_t> externals_;  // by correlation
  std::unordered_map<std::uint64_t, std::uint32_t> names_[3];
};

// A window's records, put together: the same for what CUPTI gave and for what was dumped.
// What belongs to a window besides its buffers.
struct WindowFacts {
  std::vector<ClockReading> clocks;
  std::unordered_map<std::uint64_t, std::uint64_t> calls;  // by a graph's node
  std::uint64_t dropped = 0;                               // by CUPTI
  std::vector<std::string> notes;
};

Traced assemble(Parser& parser, const WindowFacts& facts);

}  // namespace warpstep::profiler
