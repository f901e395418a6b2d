// Converts CUPTI's records to activities; all code that depends on the layout of records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

struct CuptiApi;

// Bytes of a record in a library's buffers, by kind; 0 for an unknown kind.
using RecordBytes = std::array<std::uint16_t, 64>;

// Those of CUPTI 13.0. Later versions append fields.
const RecordBytes& oldest_record_bytes();

// Those of the library, by its own steps through a buffer. From 13.2 on it needs a driver for that.
RecordBytes measure_record_bytes(const CuptiApi& api);

// The first kind whose records are too short for the fields that are read; empty: there is none.
std::string too_short_record(const RecordBytes& bytes);

// Frequent and cheap calls of the runtime that are not worth a record: cudaGetLastError, ...
std::span<const std::uint32_t> noisy_runtime_calls();

// A text that a record refers to but does not hold.
enum class TextOf : std::uint32_t {
  kernel,   // key: the address of the mangled name in CUPTI
  runtime,  // key: the call's callback id
  driver,
};
using TextSource = std::function<std::string(TextOf of, std::uint64_t key)>;

struct Parsed {
  std::vector<Activity> activities;                  // by start; times in CUPTI's clock
  std::unordered_set<std::uint32_t> graph_launches;  // their correlations
  std::uint64_t without_times = 0;
  std::uint64_t unread_bytes = 0;  // after records of an unknown kind
  std::uint64_t unread_parts = 0;  // buffers with such bytes: at least one lost record in each
};

class Parser {
 public:
  // Calls `text` once for each key. Records that CUPTI wrote in this process own memory, which
  // `frees` frees; those of a dump do not.
  Parser(TextSource text, bool frees, const RecordBytes& bytes = oldest_record_bytes())
      : text_(std::move(text)), frees_(frees), record_bytes_(bytes) {}

  // The records of a buffer, which may end anywhere.
  void take(std::span<const std::byte> buffer);
  // Joins the records: each activity gets its call, and each correlation keeps one launch.
  // `call_of` maps a graph's node to the call that it came from.
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
  RecordBytes record_bytes_;
  Parsed parsed_;
  std::vector<Activity> driver_calls_;
  std::unordered_map<std::uint32_t, std::uint32_t> externals_;  // by correlation
  std::unordered_map<std::uint64_t, std::uint32_t> names_[3];
};

// The facts about a window besides its buffers.
struct WindowFacts {
  std::vector<ClockReading> clocks;
  std::unordered_map<std::uint64_t, std::uint64_t> calls;  // by graph node
  std::uint64_t dropped = 0;                               // by CUPTI
  std::vector<std::string> notes;
};

// The result of a window, from CUPTI or from a dump.
Traced assemble(Parser& parser, const WindowFacts& facts);

}  // namespace warpstep::profiler
