// Binds GELU and its adjoint to their launchers.
#include "kernels/gelu/gelu.cuda.h"

#include "kernels/cuda/cuda.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

// The adjoint with the column sums of its result; a separate pass where that is not padded, as in
// kernels/pointwise/pointwise.cuda.cpp.
std::unique_ptr<Kernel> bind_gelu_grad_with_sums(const GeluGrad& op, const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const Shape& d_x = operands.stored_out();
  const std::int64_t rows = rows_of(d_x), channels = d_x.back(),
                     sums = operands.stored_out(1).back();
  if (sums != channels || !are_whole_vectors(channels, dtype))
    return launch_kernel("gelu_grad + column_sums", [=, tanh = op.tanh, count = d_x.count()](
                                                        const Buffers& b, CudaStream& s) {
      gelu_grad(tanh, b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
      column_sums_unaligned(b.out[0], channels, b.out[1], rows, sums, dtype, s.handle());
    });
  return launch_kernel(
      "gelu_grad_sums",
      [=, tanh = op.tanh, tickets = Ticket(operands.context, column_sums_tickets(channels))](
          const Buffers& b, CudaStream& s) {
        gelu_grad_sums(tanh, b.in[0], b.in[1], b.out[0], b.out[1], rows, channels, dtype,
                       b.workspace, tickets.word(), s.handle());
      },
      column_sums_workspace(rows, channels));
}

}  // namespace

std::unique_ptr<Kernel> bind(const Gelu& op, const Operands& operands) {
  return launch_kernel("gelu", [op, count = operands.stored_out().count(),
                                dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
    gelu(op.tanh, b.in[0], b.out[0], count, dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  if (op.bias_gradient) return bind_gelu_grad_with_sums(op, operands);
  return launch_kernel("gelu_grad",
                       [op, count = operands.stored_out().count(), dtype = operands.dtype_out()](
                           const Buffers& b, CudaStream& s) {
                         gelu_grad(op.tanh, b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
                       });
}

}  // namespace warpstep::cuda
