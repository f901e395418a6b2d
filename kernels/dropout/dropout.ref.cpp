// Dropout in double, one draw per element.
#include "engine/core/random.h"
#include "engine/graph/step_state.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Dropout& op, const Operands& operands) {
  return host_kernel("loops", [op, count = operands.out_shape().count()](const Buffers& b) {
    const auto& state = *as<StepState>(b.in[1]);
    for (std::int64_t e = 0; e < count; ++e) {
      const std::uint64_t at = first_draw(state, count) + static_cast<std::uint64_t>(e);
      const std::uint32_t word = draw(state.seed, Purpose::dropout, op.layer, at / 4)[at % 4];
      const bool kept = static_cast<double>(uniform(word)) >= op.rate;
      as<double>(b.out[0])[e] = kept ? as<double>(b.in[0])[e] / (1 - op.rate) : 0;
    }
  });
}

}  // namespace warpstep::ref
