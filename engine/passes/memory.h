// Where each value of a step lives: one arena, planned ahead from the values' lifetimes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/passes/schedule.h"

namespace warpstep {

// Where buffers lie in one piece of memory, from their lifetimes alone.

// What cudaMalloc gives, and what cublasLt wants of a workspace; a multiple of lines and vectors.
constexpr std::size_t arena_alignment = 256;

inline std::size_t align_up(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;  // node that writes it
  int last = 0;   // node that needs it last; alive during both
};

// Offsets so that no two lifetimes that overlap in time overlap in space; each aligned to
// arena_alignment. The same for the same lifetimes. Takes about 0.1 s at most for 350 lifetimes, 1
// s for 2000 or more; one placement, which takes 3 s for 36,000, is made in any case.
struct Placement {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  std::size_t looks = 0;  // at other lifetimes while searching: what it cost
};
Placement place(std::span<const Lifetime> lifetimes);

// Bytes (each size rounded up to the alignment) alive at each node, and the most of them: no
// placement can be smaller.
std::vector<std::size_t> live_bytes(std::span<const Lifetime> lifetimes);
std::size_t live_bound(std::span<const Lifetime> lifetimes);

struct MemoryPlan {
  struct Buffer {
    std::string name;  // of the value that made it; "conv2/conv workspace"
    Lifetime lifetime;
    std::size_t offset = 0;
  };
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of_value;  // -1: an input slot, persistent, or unused
  std::vector<int>
      storage_of_value;  // the value whose memory this one is: itself, or what it is a view of
  std::vector<int> workspace_of_node;  // -1: none
  std::size_t arena_bytes = 0;
  std::size_t bound_bytes = 0;     // live_bound of the buffers
  std::size_t separate_bytes = 0;  // what separate buffers for every value would take
  int peak_node = 0;

  std::vector<int> alive_at(int node) const;  // buffers, largest first
};

// The graph's layouts must be chosen; workspaces: bytes a node. Views share their source's buffer;
// an op that may work in place takes over the buffer of an input that dies in it. What a node of
// the second lane uses stays alive until it is waited for.
MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> workspaces,
                       const Lanes& lanes);

}  // namespace warpstep
