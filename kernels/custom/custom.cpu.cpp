// A user's own op provides its kernels.
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  std::unique_ptr<Kernel> kernel = op.op->bind("cpu", operands.graph, operands.node);
  if (!kernel)
    fail<DeviceError>("cpu: {} has no kernel for this backend: its bind() returns none",
                      operands.node.title());
  return kernel;
}

}  // namespace warpstep::cpu
