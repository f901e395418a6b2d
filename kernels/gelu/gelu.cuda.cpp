#include "kernels/gelu/gelu.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const Gelu& op, const Operands& operands) {
  return launch_kernel("gelu", [op, count = operands.stored_out().count(),
                                dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
    gelu(op.tanh, b.in[0], b.out[0], count, dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  return launch_kernel("gelu_grad",
                       [op, count = operands.stored_out().count(), dtype = operands.dtype_out()](
                           const Buffers& b, CudaStream& s) {
                         gelu_grad(op.tanh, b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
                       });
}

}  // namespace warpstep::cuda
