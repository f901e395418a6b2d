// Binds layer norm and its adjoint to their launchers.
#include "kernels/layer_norm/layer_norm.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

LayerNormShape layer_norm_shape(const Operands& operands, double epsilon) {
  return {.rows = operands.in_shape(0)[0],
          .channels = operands.stored_in(0).back(),
          .real = operands.in_shape(0).back(),
          .epsilon = static_cast<float>(epsilon)};
}

}  // namespace

std::unique_ptr<Kernel> bind(const LayerNorm& op, const Operands& operands) {
  const LayerNormShape shape = layer_norm_shape(operands, op.epsilon);
  return launch_kernel("layer_norm",
                       [op, shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         layer_norm(shape,
                                    {.x = b.in[0],
                                     .shortcut = op.add ? b.in.back() : nullptr,
                                     .gamma = as<float>(b.in[1]),
                                     .beta = op.bias ? as<float>(b.in[2]) : nullptr,
                                     .y = b.out[0],
                                     .sum = op.add ? b.out[3] : nullptr,
                                     .mean = as<float>(b.out[1]),
                                     .inv_std = as<float>(b.out[2])},
                                    dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const LayerNormGrad& op, const Operands& operands) {
  const LayerNormShape shape = layer_norm_shape(operands, 0);
  const DType dtype = operands.dtype_out();
  return launch_kernel(
      "layer_norm_grad + layer_norm_grad_sums",
      [op, shape, dtype](const Buffers& b, CudaStream& s) {
        layer_norm_grad(shape,
                        {.d_y = b.in[0],
                         .s = b.in[1],
                         .second = op.sum ? b.in[5] : nullptr,
                         .gamma = as<float>(b.in[2]),
                         .mean = as<float>(b.in[3]),
                         .inv_std = as<float>(b.in[4]),
                         .d_s = b.out[0],
                         .d_gamma = b.out[1],
                         .d_beta = op.bias ? b.out[2] : nullptr,
                         .d_s_sums = op.bias_gradient ? b.out.back() : nullptr},
                        dtype, b.workspace, s.handle());
      },
      layer_norm_grad_workspace(shape, 1 + (op.bias ? 1 : 0) + (op.bias_gradient ? 1 : 0), dtype));
}

}  // namespace warpstep::cuda
