// Arithmetic of the update shared by the host's backends: overflow, norm, clipping, LARS, and the
// random rounding of moments.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/core/random.h"
#include "engine/graph/graph.h"
#include "engine/graph/step_state.h"

namespace warpstep {

// Whether the step updates at all: it does not while it only accumulates, nor after an overflow.
inline bool updates(const StepState& state) {
  return state.update != 0 && state.overflow == 0;
}

// The random bits for a moment, the first or the second, of the element whose word of
// draw(seed, Purpose::moments, update_index, place in the sections / 4) this is.
constexpr std::uint32_t moment_bits(std::uint32_t word, int moment) {
  return moment == 0 ? word & 0xFFFF : word >> 16;
}

// Stores the result of CheckGradients in the state, from the sum of the squares of the stored
// gradients and whether all of them are finite.
inline void settle_norm(StepState& state, double squares, bool finite, double clip_norm) {
  if (!finite) state.overflow = 1;
  if (!updates(state)) return;
  const double norm = std::sqrt(squares) / static_cast<double>(state.loss_scale);
  state.gradient_norm = static_cast<float>(norm);
  if (clip_norm > 0)
    state.gradient_factor *= static_cast<float>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

// The factor and the decay of LARS for one parameter: its stored gradient becomes
// factor * (stored + decay * parameter), or stays as it is where the factor is 0. The update
// multiplies all of it by gradient_factor, so that the decay is divided by that here.
struct LarsFactor {
  double factor = 0, decay = 0;
};
inline LarsFactor lars_factor(const LarsScale& op, const StepState& state, double parameter_squares,
                              double stored_squares) {
  const double used = static_cast<double>(state.gradient_factor);  // unscales and clips
  const double w = std::sqrt(parameter_squares), g = std::sqrt(stored_squares) * used;
  if (w == 0 || g == 0) return {};
  return {op.trust * w / (g + op.weight_decay * w + op.epsilon), op.weight_decay / used};
}

// The inputs of a LarsScale node that it scales, as indices of its parameters: matrices and
// filters, not biases and norms.
inline std::vector<std::size_t> lars_inputs(const Graph& graph, const Node& node) {
  std::vector<std::size_t> found;
  for (std::size_t i = 1; i < node.in.size(); i += 2)
    if (graph.value(node.in[i]).type.shape.rank() >= 2) found.push_back(i);
  return found;
}

}  // namespace warpstep
