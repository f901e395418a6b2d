// Binds the pools to their launchers.
#include "kernels/pool/pool.cuda.h"

#include "kernels/cuda/cuda.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

// The adjoint with the sums of d_x's columns. The sums of a convolution in groups are not padded as
// d_x is: then they are a separate pass.
std::unique_ptr<Kernel> bind_with_sums(const PoolShape& shape, const Operands& operands) {
  const std::int64_t sums = operands.stored_out(1).back(), rows = rows_of(operands.stored_out());
  if (sums != shape.channels)
    return launch_kernel(
        "max_pool_grad + column_sums",
        [shape, sums, rows, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
          max_pool_grad(shape, b.in[0], as<std::uint8_t>(b.in[1]), b.out[0], dtype, s.handle());
          column_sums_unaligned(b.out[0], shape.channels, b.out[1], rows, sums, dtype, s.handle());
        });
  return launch_kernel(
      "max_pool_grad_sums",
      [shape, dtype = operands.dtype_out(),
       tickets = Ticket(operands.context, column_sums_tickets(shape.channels))](const Buffers& b,
                                                                                CudaStream& s) {
        max_pool_grad_sums(shape, b.in[0], as<std::uint8_t>(b.in[1]), b.out[0], b.out[1], dtype,
                           b.workspace, tickets.word(), s.handle());
      },
      max_pool_grad_sums_workspace(shape));
}

}  // namespace

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  const PoolShape shape = pool_shape(op, operands.stored_in(0), operands.stored_out());
  return launch_kernel(
      "max_pool", [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
        max_pool(shape, b.in[0], b.out[0], as<std::uint8_t>(b.out[1]), dtype, s.handle());
      });
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  const PoolShape shape = pool_shape(op.pool, operands.stored_out(), operands.stored_in(0));
  if (op.bias_gradient) return bind_with_sums(shape, operands);
  return launch_kernel(
      "max_pool_grad", [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
        max_pool_grad(shape, b.in[0], as<std::uint8_t>(b.in[1]), b.out[0], dtype, s.handle());
      });
}

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
