// Binds batch norm with the max pool after it, and its adjoint, to their launchers.
#include "kernels/norm_pool/norm_pool.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

bool computes_normed(const MaxPool& pool) {
  return pool.window == 3 && pool.stride == 2;
}

std::unique_ptr<Kernel> bind(const NormPool& op, const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const NormShape norm = norm_shape(op.norm, operands.in_shape(0), operands.stored_in(0));
  const PoolShape pool = pool_shape(op.pool, operands.stored_in(0), operands.stored_out());
  return launch_kernel(
      "batch_norm_statistics + norm_max_pool",
      [=, tickets = Ticket(operands.context, batch_norm_tickets(norm, dtype))](const Buffers& b,
                                                                               CudaStream& s) {
        auto *mean = as<float>(b.out[2]), *inv_std = as<float>(b.out[3]);
        batch_norm_sum(norm,
                       {.x = b.in[0],
                        .running_mean = as<float>(b.in[3]),
                        .running_var = as<float>(b.in[4]),
                        .mean = mean,
                        .inv_std = inv_std},
                       dtype, b.workspace, tickets.word(), 0, s.handle());
        norm_max_pool(norm, pool,
                      {.x = b.in[0],
                       .gamma = as<float>(b.in[1]),
                       .beta = as<float>(b.in[2]),
                       .mean = mean,
                       .inv_std = inv_std,
                       .y = b.out[0],
                       .index = as<std::uint8_t>(b.out[1])},
                      dtype, s.handle());
      },
      batch_norm_workspace(norm, dtype));
}

std::unique_ptr<Kernel> bind(const NormPoolGrad& op, const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const NormShape norm = norm_shape(BatchNorm{}, operands.in_shape(2), operands.stored_in(2));
  const PoolShape pool = pool_shape(op.pool, operands.stored_in(2), operands.stored_in(0));
  return launch_kernel(
      "norm_pool_grad_sums + norm_pool_grad",
      [=, tickets = Ticket(operands.context, batch_norm_tickets(norm, dtype))](const Buffers& b,
                                                                               CudaStream& s) {
        norm_max_pool_grad(norm, pool,
                           {.d_y = b.in[0],
                            .index = as<std::uint8_t>(b.in[1]),
                            .x = b.in[2],
                            .gamma = as<float>(b.in[3]),
                            .mean = as<float>(b.in[4]),
                            .inv_std = as<float>(b.in[5]),
                            .d_x = b.out[0],
                            .d_gamma = b.out[1],
                            .d_beta = b.out[2]},
                           dtype, b.workspace, tickets.word(), s.handle());
      },
      batch_norm_grad_workspace(norm, dtype));
}

}  // namespace warpstep::cuda
