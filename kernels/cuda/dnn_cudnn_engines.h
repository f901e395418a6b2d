// Engines: the ways in which cuDNN can compute a graph, as its heuristics rank them, and which of
// them the settings allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/dnn_descriptor.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda::dnn {

// One way: an engine with values for its knobs (tile sizes, split-k and the like).
struct EngineConfig {
  Descriptor descriptor;
  std::int64_t engine = 0;  // its number among those for this kind of graph
  std::vector<cudnnBackendNumericalNote_t> numerical;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  bool is_fallback = false;  // of the slower, general engines

  bool has(cudnnBackendNumericalNote_t note) const;
  bool has(cudnnBackendBehaviorNote_t note) const;
  std::string text() const;  // "engine 41 (precompiled, tensor cores)"
};

// Best first, by cuDNN's estimate; none when no engine computes the graph. Throws DeviceError when
// the heuristics themselves fail.
std::vector<EngineConfig> propose(const Descriptor& graph, const Descriptor& device,
                                  cudnnBackendHeurMode_t mode);

// Why the settings rule an engine out; empty if they do not. `full_f32`: the graph's tensors are
// all f32 and the settings do not allow tf32.
std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32);

}  // namespace warpstep::cuda::dnn
