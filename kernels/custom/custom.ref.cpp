// A user's own op provides its kernels.
#include "engine/core/error.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  std::unique_ptr<Kernel> kernel = op.op->bind("ref", operands.graph, operands.node);
  if (!kernel)
    fail<DeviceError>("ref: {} has no kernel for this backend: its bind() returns none",
                      operands.node.title());
  return kernel;
}

}  // namespace warpstep::ref
