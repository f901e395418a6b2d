#include "profiler/analysis/memory.h"

#include <algorithm>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

namespace {

// A plan without kinds still has workspaces and gradients by their names.
std::string kind_of(const Json& buffer, const std::string& name) {
  std::string kind = fields::text(buffer, "kind");
  if (!kind.empty()) return kind;
  if (name.ends_with(" workspace")) return "workspace";
  return name.starts_with("d_") ? "gradient" : "activation";
}

MemoryOwner owner_of(const Json& buffer) {
  const std::string name = fields::text(buffer, "name");
  return {fields::text(buffer, "layer"), kind_of(buffer, name), name,
          fields::count(buffer, "bytes")};
}

// The plan counts calls from 1; 0 is before the first one.
int call_index(const Json& buffer, const char* key, std::size_t calls) {
  const std::uint64_t number = std::min<std::uint64_t>(fields::count(buffer, key), calls);
  return number == 0 ? 0 : static_cast<int>(number) - 1;
}

std::size_t call_count(const Session& session, const Json& buffers) {
  const Json& calls = fields::child(session.program, "calls");
  if (calls.is_array() && !calls.empty()) return calls.size();
  std::uint64_t last = 0;
  if (buffers.is_array())
    for (const Json& buffer : buffers) last = std::max(last, fields::count(buffer, "last_call"));
  return std::min<std::uint64_t>(last, most_calls);
}

// Sums by kind, of plans that list no single owners.
std::vector<MemoryOwner> persistent_sums(const Json& plan) {
  std::vector<MemoryOwner> owners;
  std::uint64_t known = fields::count(plan, "arena_bytes");
  const auto add = [&](const char* kind, const char* name, std::uint64_t bytes) {
    known += bytes;
    if (bytes > 0) owners.push_back({"", kind, name, bytes});
  };
  add("parameter", "parameters", fields::count(plan, "parameter_bytes"));
  add("gradient", "gradients", fields::count(plan, "gradient_bytes"));
  add("accumulator", "sums of gradients", fields::count(plan, "gradient_sum_bytes"));
  add("moment", "moments", fields::count(plan, "moment_bytes"));
  add("average", "averages of parameters", fields::count(plan, "average_bytes"));
  add("input", "input slots", fields::count(plan, "input_slot_bytes"));
  add("data set", "resident data set", fields::count(plan, "resident_bytes"));
  const std::uint64_t all = fields::count(plan, "total_bytes");
  if (all > known) add("copy", "16-bit copies of parameters", all - known);
  return owners;
}

std::vector<MemoryOwner> persistent_owners(const Json& plan) {
  const Json& listed = fields::child(plan, "persistent");
  if (!listed.is_array() || listed.empty()) return persistent_sums(plan);
  std::vector<MemoryOwner> owners;
  for (const Json& owner : listed)
    if (fields::count(owner, "bytes") > 0)
      owners.push_back({fields::text(owner, "layer"), fields::text(owner, "kind", "other"),
                        fields::text(owner, "name"), fields::count(owner, "bytes")});
  return owners;
}

std::size_t kind_index(const std::string& kind, std::size_t calls, MemoryTimeline& memory) {
  const auto found = std::find(memory.kinds.begin(), memory.kinds.end(), kind);
  if (found != memory.kinds.end()) return static_cast<std::size_t>(found - memory.kinds.begin());
  constexpr std::size_t most_kinds = 64;  // a plan has some ten: more are damage
  if (memory.kinds.size() == most_kinds) return most_kinds - 1;
  memory.kinds.push_back(kind);
  memory.by_kind.emplace_back(calls);
  return memory.kinds.size() - 1;
}

// Curves by kind, and the arena's live bytes during each call.
std::vector<std::uint64_t> fill_curves(std::size_t calls, MemoryTimeline& memory) {
  for (const MemoryOwner& owner : memory.persistent) {
    auto& curve = memory.by_kind[kind_index(owner.kind, calls, memory)];
    for (std::uint64_t& bytes : curve) bytes += owner.bytes;
  }
  std::vector<std::vector<std::uint64_t>> changes;  // modulo 2^64: frees are negative
  for (const Allocation& a : memory.allocations) {
    const std::size_t kind = kind_index(a.owner.kind, calls, memory);
    changes.resize(memory.kinds.size(), std::vector<std::uint64_t>(calls + 1));
    changes[kind][static_cast<std::size_t>(a.first_call)] += a.owner.bytes;
    changes[kind][static_cast<std::size_t>(a.last_call) + 1] -= a.owner.bytes;
  }
  std::vector<std::uint64_t> live(calls);
  for (std::size_t k = 0; k < changes.size(); ++k) {
    std::uint64_t bytes = 0;
    for (std::size_t call = 0; call < calls && !changes[k].empty(); ++call) {
      bytes += changes[k][call];
      memory.by_kind[k][call] += bytes;
      live[call] += bytes;
    }
  }
  return live;
}

void find_peak(const std::vector<std::uint64_t>& live, MemoryTimeline& memory) {
  const auto peak = std::max_element(live.begin(), live.end());
  if (peak == live.end()) return;
  memory.peak_bytes = *peak;
  memory.peak_call = static_cast<int>(peak - live.begin());
  for (const Allocation& a : memory.allocations)
    if (a.first_call <= memory.peak_call && memory.peak_call <= a.last_call)
      memory.at_peak.push_back(a.owner);
  std::stable_sort(memory.at_peak.begin(), memory.at_peak.end(),
                   [](const MemoryOwner& a, const MemoryOwner& b) { return a.bytes > b.bytes; });
  if (memory.arena_bytes > memory.peak_bytes)
    memory.fragmentation = static_cast<double>(memory.arena_bytes - memory.peak_bytes) /
                           static_cast<double>(memory.arena_bytes);
}

}  // namespace

MemoryTimeline memory_timeline(const Session& session) {
  const Json& plan = fields::child(session.program, "memory");
  const Json& buffers = fields::child(plan, "buffers");
  const std::size_t calls = call_count(session, buffers);
  MemoryTimeline memory;
  memory.arena_bytes = fields::count(plan, "arena_bytes");
  memory.persistent = persistent_owners(plan);
  for (const MemoryOwner& owner : memory.persistent) memory.persistent_bytes += owner.bytes;
  if (buffers.is_array() && calls > 0)
    for (const Json& buffer : buffers) {
      const int first = call_index(buffer, "first_call", calls);
      const int last = std::max(first, call_index(buffer, "last_call", calls));
      memory.allocations.push_back(
          {owner_of(buffer), fields::count(buffer, "offset"), first, last});
    }
  find_peak(fill_curves(calls, memory), memory);
  return memory;
}

}  // namespace warpstep::profiler
