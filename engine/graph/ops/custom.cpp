#include "engine/graph/ops/custom.h"

#include "engine/core/error.h"

namespace warpstep {

CustomOp::~CustomOp() = default;

void CustomOp::grad(Adjoint&) const {
  fail<NoAdjoint>("{} has no adjoint; override CustomOp::grad", name());
}

Types infer(const Custom& op, const Types& in) {
  Types out = op.op->infer(in);
  if (out.empty()) fail<ShapeError>("its infer() gives no output; an op has at least one");
  return out;
}

void grad(const Custom& op, Adjoint& adjoint) {
  op.op->grad(adjoint);
}

Cost cost(const Custom& op, const Types& in, const Types& out) {
  return op.op->cost(in, out);
}

std::string text(const Custom& op) {
  return op.op->text();
}

}  // namespace warpstep
