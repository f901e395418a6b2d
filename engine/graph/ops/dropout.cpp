#include "engine/graph/ops/dropout.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/step_state.h"

namespace warpstep {

Types infer(const Dropout& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  if (!(op.rate >= 0 && op.rate < 1))
    fail<ShapeError>("dropout must be a share of at least 0 and below 1, not {}", op.rate);
  if (!is_float(in[0].dtype)) fail<ShapeError>("dropout takes numbers, not {}", in[0].text());
  if (in[1] != Type{DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}})
    fail<ShapeError>("dropout takes the step's state, not {}", in[1].text());
  return {in[0]};
}

void grad(const Dropout& op, Adjoint& adjoint) {
  adjoint.give(0, adjoint.record(Phase::data_grad, op, {adjoint.d_out(), adjoint.in(1)})[0]);
}

// Ten rounds of two multiplications for four elements.
Cost cost(const Dropout&, const Types& in, const Types& out) {
  return {6 * static_cast<double>(in[0].shape.count()), bytes_of({in[0]}) + bytes_of(out), 1};
}

std::string text(const Dropout& op) {
  return fmt::format("{}", op.rate);
}

}  // namespace warpstep
