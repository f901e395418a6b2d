// The memory of a step as a snapshot of PyTorch's allocator: torch.cuda._memory_viz and
// https://pytorch.org/memory_viz open it. The file is a pickle of dictionaries, lists, texts and
// whole numbers alone (protocol 2: https://docs.python.org/3/library/pickletools.html).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/json_text.h"
#include "profiler/analysis/memory.h"
#include "profiler/export/export.h"
#include "profiler/export/trace_file.h"

namespace warpstep::profiler {
namespace {

void append_pickled_bytes(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// By the shortest opcode, as Python does: readers may take LONG1 for numbers beyond 32 bits.
void append_pickled_number(std::string& out, std::uint64_t value) {
  value = std::min(value, (std::uint64_t{1} << 63) - 1);
  if (value < (std::uint64_t{1} << 31)) {
    const int bytes = value < 0x100 ? 1 : value < 0x10000 ? 2 : 4;
    out += bytes == 1 ? 'K' : bytes == 2 ? 'M' : 'J';  // BININT1, BININT2, BININT
    return append_pickled_bytes(out, value, bytes);
  }
  const int bytes = static_cast<int>(std::bit_width(value)) / 8 + 1;  // with a bit for the sign
  out += '\x8a';                                                      // LONG1
  append_pickled_bytes(out, static_cast<std::uint64_t>(bytes), 1);
  append_pickled_bytes(out, value, bytes);
}

// A JSON value of objects, arrays, texts, booleans and whole numbers of up to 63 bits.
void append_pickled(std::string& out, const Json& value) {
  if (value.is_object() || value.is_array()) {
    out += value.is_object() ? "}(" : "](";  // an empty one, and a mark
    for (const auto& item : value.items()) {
      if (value.is_object()) append_pickled(out, item.key());
      append_pickled(out, item.value());
    }
    out += value.is_object() ? 'u' : 'e';  // SETITEMS, APPENDS
  } else if (value.is_string()) {
    // Bytes that are no UTF-8 become U+FFFD.
    const std::string text = utf8(value.get_ref<const std::string&>());
    out += 'X';  // BINUNICODE
    append_pickled_bytes(out, text.size(), 4);
    out += text;
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? '\x88' : '\x89';
  } else {
    append_pickled_number(out, value.get<std::uint64_t>());
  }
}

// Where buffers of the snapshot lie: those outside of the arena have no addresses in the plan.
constexpr std::uint64_t persistent_address = std::uint64_t{1} << 32;
constexpr std::uint64_t arena_address = std::uint64_t{1} << 44;

class Snapshot {
 public:
  explicit Snapshot(const MemoryTimeline& memory) : memory_(memory) {}

  Json run() {
    add_persistent();
    add_arena();
    return {{"segments", std::move(segments_)},
            {"device_traces", Json::array({std::move(trace_)})},
            {"allocator_settings", Json::object()},
            {"external_annotations", Json::array()}};
  }

 private:
  // The place of an owner: its kind and layer are where other programs have a source file.
  static Json frames(const MemoryOwner& owner, int line) {
    std::string place = owner.kind;
    if (!owner.layer.empty()) place += " of " + owner.layer;
    return Json::array({{{"name", owner.name.empty() ? owner.kind : owner.name},
                         {"filename", place},
                         {"line", line}}});
  }

  void event(const char* action, std::uint64_t address, std::uint64_t bytes, int call,
             const Json& where) {
    trace_.push_back({{"action", action},
                      {"addr", address},
                      {"size", bytes},
                      {"stream", 0},
                      {"time_us", call},
                      {"frames", where}});
  }

  void add_segment(std::uint64_t address, std::uint64_t bytes, std::uint64_t active, Json blocks) {
    segments_.push_back({{"device", 0},
                         {"address", address},
                         {"total_size", bytes},
                         {"allocated_size", active},
                         {"active_size", active},
                         {"requested_size", active},
                         {"stream", 0},
                         {"segment_type", "large"},
                         {"segment_pool_id", Json::array({0, 0})},
                         {"is_expandable", false},
                         {"frames", Json::array()},
                         {"blocks", std::move(blocks)}});
  }

  static Json block(std::uint64_t address, std::uint64_t bytes, const char* state, Json where) {
    return {{"address", address},
            {"size", bytes},
            {"requested_size", bytes},
            {"state", state},
            {"frames", where}};
  }

  void add_persistent() {
    if (memory_.persistent_bytes == 0) return;
    event("segment_alloc", persistent_address, memory_.persistent_bytes, 0, Json::array());
    Json blocks = Json::array();
    std::uint64_t address = persistent_address;
    for (const MemoryOwner& owner : memory_.persistent) {
      event("alloc", address, owner.bytes, 0, frames(owner, 0));
      blocks.push_back(block(address, owner.bytes, "active_allocated", frames(owner, 0)));
      address += owner.bytes;
    }
    add_segment(persistent_address, address - persistent_address, address - persistent_address,
                std::move(blocks));
  }

  // Calls are numbered from 1, as in the report; a buffer is freed after its last call.
  void add_arena() {
    if (memory_.arena_bytes == 0) return;
    event("segment_alloc", arena_address, memory_.arena_bytes, 0, Json::array());
    struct Moment {
      int call;
      bool is_alloc;
      const Allocation* buffer;
    };
    std::vector<Moment> moments;
    for (const Allocation& buffer : memory_.allocations) {
      if (buffer.owner.bytes == 0) continue;
      moments.push_back({buffer.first_call + 1, true, &buffer});
      moments.push_back({buffer.last_call + 2, false, &buffer});
    }
    // What ends before a call is free when the call's buffers come.
    std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return std::pair(a.call, a.is_alloc) < std::pair(b.call, b.is_alloc);
    });
    for (const auto& [call, is_alloc, buffer] : moments) {
      const std::uint64_t address = arena_address + buffer->offset;
      const Json where = frames(buffer->owner, buffer->first_call + 1);
      if (!is_alloc) event("free_requested", address, buffer->owner.bytes, call, where);
      event(is_alloc ? "alloc" : "free_completed", address, buffer->owner.bytes, call, where);
    }
    add_segment(
        arena_address, memory_.arena_bytes, 0,
        Json::array({block(arena_address, memory_.arena_bytes, "inactive", Json::array())}));
  }

  const MemoryTimeline& memory_;
  Json segments_ = Json::array(), trace_ = Json::array();
};

}  // namespace

std::string memory_snapshot(const Session& session) {
  std::string pickle = "\x80\x02";  // PROTO 2
  append_pickled(pickle, Snapshot(memory_timeline(session)).run());
  return pickle + '.';
}

}  // namespace warpstep::profiler
