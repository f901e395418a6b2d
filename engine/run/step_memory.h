// What a step takes of a device's memory, from planning alone: nothing is allocated.
#pragma once

#include <string>

#include "engine/core/error.h"
#include "engine/passes/memory.h"
#include "engine/run/backend.h"

namespace warpstep {

// The memory that a program wants is not to be had. The message names the peak.
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};

// What is kept of a parameter in f32, sums of gradients and averages, is stored as the parameter
// itself, at the same indices. The graph's layouts must be chosen.
void store_sums_like_parameters(Graph& graph);

struct LanePlan {
  Lanes lanes;
  MemoryPlan memory;
};
// The plan of a graph whose layouts are chosen, with two lanes where the backend has them and they
// do not cost too much memory.
LanePlan plan_lanes(const Graph& graph, const Backend& backend,
                    std::span<const std::size_t> workspaces);

// What takes most of a step's memory: "layer1.0.bn1 is the peak with 9.1 GiB alive, the largest of
// it layer1.0.bn1.0 (1.5 GiB), ...", or what persists: "parameters (12.9 GiB), gradients (12.9
// GiB), moments (25.8 GiB), of which fc1.weight has ..."; both where both count.
std::string memory_text(const Graph& graph, const MemoryPlan& plan);

// Of parameters and what is kept of them, and of buffers, as a Store places them.
std::size_t persistent_bytes(const Graph& graph);
// Of one batch's input slots, as they are stored; none that are resident.
std::size_t slot_bytes(const Graph& graph);

struct StepMemory {
  Graph graph;  // with its layouts
  MemoryPlan plan;
  std::size_t persistent_bytes = 0;  // of the graph, unless it shares them
  std::size_t input_bytes = 0;       // slot_bytes
};
// Chooses layouts and binds kernels as a Program does, then lets them go. `shares`: a graph with
// layouts whose parameters this one uses too; its persistent values then count as none.
StepMemory plan_step(Graph graph, const Backend& backend, const Graph* shares = nullptr);

}  // namespace warpstep
