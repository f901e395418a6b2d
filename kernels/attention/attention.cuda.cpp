// Binds attention and its adjoint to our own kernels, which compute every dtype, mask and dropout.
#include "kernels/attention/attention.cuda.h"

#include "engine/core/error.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

AttentionShape attention_shape(const Attention& op, const Operands& operands, int qkv, int o) {
  const AttentionRows rows(op, operands.in_shape(qkv));
  if (rows.features > most_attention_features)
    fail<DeviceError>(
        "cuda: {} has {} features per head, and at most {} are supported; use more heads",
        operands.node.title(), rows.features, most_attention_features);
  return {.sequences = rows.sequences,
          .heads = rows.heads,
          .length = rows.length,
          .features = rows.features,
          .qkv_pitch = operands.stored_in(qkv).back(),
          .o_pitch = o < 0 ? operands.stored_out().back() : operands.stored_in(o).back(),
          .causal = op.causal,
          .dropout = op.dropout,
          .layer = op.layer};
}

}  // namespace

std::unique_ptr<Kernel> bind(const Attention& op, const Operands& operands) {
  const AttentionShape shape = attention_shape(op, operands, 0, -1);
  return launch_kernel("attention",
                       [op, shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         attention(shape,
                                   {.qkv = b.in[0],
                                    .o = b.out[0],
                                    .statistics = as<float>(b.out[1]),
                                    .state = op.dropout > 0 ? as<StepState>(b.in[1]) : nullptr},
                                   dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const AttentionGrad& op, const Operands& operands) {
  const AttentionShape shape = attention_shape(op.attention, operands, 1, 0);
  return launch_kernel(
      "attention_means + attention_query_grad + attention_key_grad",
      [op, shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
        attention_grad(shape,
                       {.d_o = b.in[0],
                        .qkv = b.in[1],
                        .o = b.in[2],
                        .statistics = as<float>(b.in[3]),
                        .state = op.attention.dropout > 0 ? as<StepState>(b.in[4]) : nullptr,
                        .d_qkv = b.out[0],
                        .means = as<float>(b.workspace)},
                       dtype, s.handle());
      },
      attention_grad_workspace(shape));
}

}  // namespace warpstep::cuda
