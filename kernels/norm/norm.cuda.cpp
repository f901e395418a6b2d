// Binds batch norm and its adjoint, alone and with the max pool after it, to their launchers.
#include "kernels/norm/norm.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

NormBuffers norm_buffers(const BatchNorm& op, const Buffers& b) {
  return {.x = b.in[0],
          .gamma = as<float>(b.in[1]),
          .beta = as<float>(b.in[2]),
          .running_mean = as<float>(b.in[3]),
          .running_var = as<float>(b.in[4]),
          .shortcut = op.add ? b.in[5] : nullptr,
          .y = b.out[0],
          .mean = op.training ? as<float>(b.out[1]) : nullptr,
          .inv_std = op.training ? as<float>(b.out[2]) : nullptr};
}

NormGradBuffers grad_buffers(const BatchNormGrad& op, const Buffers& b) {
  const std::size_t second = op.norm.relu ? 6 : 5, shortcut = op.shortcut_operand();
  const auto of_shortcut = [&](std::size_t i) -> const void* {
    return op.shortcut_norm ? b.in[shortcut + i] : nullptr;
  };
  return {.d_y = b.in[0],
          .second = op.sum ? b.in[second] : nullptr,
          .x = b.in[1],
          .y = op.norm.relu ? b.in[5] : nullptr,
          .gamma = as<float>(b.in[2]),
          .mean = as<float>(b.in[3]),
          .inv_std = as<float>(b.in[4]),
          .d_x = b.out[0],
          .d_gamma = b.out[1],
          .d_beta = b.out[2],
          .d_shortcut = op.gives_shortcut() ? b.out[3] : nullptr,
          .shortcut = {.x = of_shortcut(0),
                       .gamma = static_cast<const float*>(of_shortcut(1)),
                       .mean = static_cast<const float*>(of_shortcut(2)),
                       .inv_std = static_cast<const float*>(of_shortcut(3)),
                       .d_gamma = op.shortcut_norm ? b.out[4] : nullptr,
                       .d_beta = op.shortcut_norm ? b.out[5] : nullptr}};
}

// Exchanges the sums of a norm over several ranks. A listing binds it without a job.
void exchange_sums(const Nccl* nccl, const NormShape& shape, DType dtype, void* workspace,
                   CudaStream& s) {
  nccl->all_gather(batch_norm_of_ranks(shape, dtype, workspace),
                   2 * idx(shape.channels) * sizeof(float), s.handle());
}
int rank_in(const Nccl* nccl, const NormShape& shape) {
  if (shape.ranks == 1) return 0;  // whatever the job has
  require_ranks(shape.ranks, nccl);
  return nccl->world().rank;
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNorm& op, const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const NormShape shape = norm_shape(op, operands.in_shape(0), operands.stored_in(0));
  if (!op.training)
    return launch_kernel("batch_norm", [=](const Buffers& b, CudaStream& s) {
      batch_norm_inference(shape, norm_buffers(op, b), dtype, s.handle());
    });
  return launch_kernel(
      shape.ranks > 1 ? "batch_norm_statistics + NCCL + batch_norm"
                      : "batch_norm_statistics + batch_norm",
      [=, nccl = operands.context.nccl,
       tickets = Ticket(operands.context, batch_norm_tickets(shape, dtype))](const Buffers& b,
                                                                             CudaStream& s) {
        const NormBuffers buffers = norm_buffers(op, b);
        batch_norm_sum(shape, buffers, dtype, b.workspace, tickets.word(),
                       rank_in(nccl.get(), shape), s.handle());
        if (shape.ranks > 1) {
          exchange_sums(nccl.get(), shape, dtype, b.workspace, s);
          batch_norm_merge(shape, buffers, dtype, b.workspace, s.handle());
        }
        batch_norm_apply(shape, buffers, dtype, s.handle());
      },
      batch_norm_workspace(shape, dtype));
}

std::unique_ptr<Kernel> bind(const BatchNormGrad& op, const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const NormShape shape = norm_shape(op.norm, operands.in_shape(1), operands.stored_in(1));
  return launch_kernel(
      shape.ranks > 1 ? "batch_norm_grad_sums + NCCL + batch_norm_grad"
                      : "batch_norm_grad_sums + batch_norm_grad",
      [=, nccl = operands.context.nccl,
       tickets = Ticket(operands.context, batch_norm_tickets(shape, dtype))](const Buffers& b,
                                                                             CudaStream& s) {
        const NormGradBuffers buffers = grad_buffers(op, b);
        batch_norm_grad_sum(shape, buffers, dtype, b.workspace, tickets.word(),
                            rank_in(nccl.get(), shape), s.handle());
        if (shape.ranks > 1) {
          exchange_sums(nccl.get(), shape, dtype, b.workspace, s);
          batch_norm_grad_merge(shape, buffers, dtype, b.workspace, s.handle());
        }
        batch_norm_grad_finish(shape, buffers, dtype, b.workspace, s.handle());
      },
      batch_norm_grad_workspace(shape, dtype, op.shortcut_norm));
}

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
