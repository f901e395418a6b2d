// A user's own op provides its kernels.
#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  for (const int id : operands.node.out)
    if (!operands.graph.value(id).layout.tag.empty())
      fail<Error>(
          "cuda: {} computes a part of the gradient of a parameter that a layer stores as {}; a "
          "custom op writes plain values: give it its own parameters",
          operands.node.title(), operands.graph.value(id).layout.tag);
  std::unique_ptr<Kernel> kernel = op.op->bind("cuda", operands.graph, operands.node);
  if (!kernel)
    fail<DeviceError>("cuda: {} has no kernel for this backend: its bind() returns none",
                      operands.node.title());
  return kernel;
}

}  // namespace warpstep::cuda
