// The memory that a step needs on a device, from planning alone: nothing is allocated.
#pragma once

#include <string>

#include "engine/core/error.h"
#include "engine/passes/memory.h"
#include "engine/run/backend.h"

namespace warpstep {

// Thrown when a program does not fit into memory. The message names the peak, where it is known.
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};

// Sums of gradients and averages of a parameter, in f32, are stored like the parameter itself, at
// the same indices. The graph's layouts must be chosen.
void store_sums_like_parameters(Graph& graph);

struct LanePlan {
  Lanes lanes;
  MemoryPlan memory;
};
// Plans a graph whose layouts are chosen: weight gradients in a lane of their own if the backend
// has side lanes and that does not cost too much memory, sums over ranks always.
LanePlan plan_lanes(const Graph& graph, const Backend& backend,
                    std::span<const std::size_t> workspaces);

// The largest parts of a step's memory: "layer1.0.bn1 is the peak with 9.1 GiB alive, the largest
// values are layer1.0.bn1.0 (1.5 GiB), ..."; or "parameters (12.9 GiB), gradients (12.9 GiB),
// moments of the optimiser (25.8 GiB) persist between steps, ... of that for fc1.weight"; both if
// both matter.
std::string memory_text(const Graph& graph, const MemoryPlan& plan);

// Bytes of parameters with their gradients, moments and copies, and of buffers, in a Store.
std::size_t persistent_bytes(const Graph& graph);
// Bytes of one batch's input slots as they are stored, without resident ones.
std::size_t slot_bytes(const Graph& graph);

// While one exists, the backend only plans.
class OnlyPlanning {
 public:
  explicit OnlyPlanning(const Backend& backend) : backend_(backend) { backend_.only_plan(true); }
  ~OnlyPlanning() { backend_.only_plan(false); }
  OnlyPlanning(const OnlyPlanning&) = delete;
  OnlyPlanning& operator=(const OnlyPlanning&) = delete;

 private:
  const Backend& backend_;
};

struct StepMemory {
  Graph graph;  // with its layouts
  MemoryPlan plan;
  std::size_t persistent_bytes = 0;  // of the graph; 0 if it shares them
  std::size_t input_bytes = 0;       // slot_bytes
};
// Chooses layouts and binds kernels as a Program does, but only plans, then frees them. `shares`: a
// graph with layouts whose parameters this one uses too; its persistent values then count 0 bytes.
StepMemory plan_step(Graph graph, const Backend& backend, const Graph* shares = nullptr);

}  // namespace warpstep
