// A user's own op brings its kernels.
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  for (const int id : operands.node.out)
    if (!operands.graph.value(id).layout.tag.empty())
      fail<Error>(
          "cpu: {} gives a part of the gradient of a parameter that a layer stores as {}; a custom "
          "op writes plain values, give it parameters of its own",
          operands.node.title(), operands.graph.value(id).layout.tag);
  std::unique_ptr<Kernel> kernel = op.op->bind("cpu", operands.graph, operands.node);
  if (!kernel)
    fail<DeviceError>("cpu: {} has no kernel for this backend; its bind() gives none",
                      operands.node.title());
  return kernel;
}

}  // namespace warpstep::cpu
