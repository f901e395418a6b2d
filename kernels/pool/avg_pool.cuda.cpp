#include "kernels/pool/avg_pool.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands& operands) {
  const PoolShape shape = pool_shape(op, operands.stored_in(0), operands.stored_out());
  return launch_kernel("avg_pool",
                       [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         avg_pool(shape, b.in[0], b.out[0], dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands& operands) {
  const PoolShape shape = pool_shape(op.pool, operands.stored_out(), operands.stored_in(0));
  return launch_kernel("avg_pool_grad",
                       [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         avg_pool_grad(shape, b.in[0], b.out[0], dtype, s.handle());
                       });
}

}  // namespace warpstep::cuda
