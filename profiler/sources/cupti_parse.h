// Converts CUPTI's records to activities; all code that depends on the layout of records.
#pragma once

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

// Bytes of a record in CUPTI 13.0's buffers; 0 for an unknown kind.
std::size_t record_bytes(std::uint32_t kind);

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
  Parser(TextSource text, bool frees) : text_(std::move(text)), frees_(frees) {}

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
