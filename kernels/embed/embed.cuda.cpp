// Binds the embeddings and their adjoint to their launchers.
#include "kernels/embed/embed.cuda.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

// The table's gradient begins as 0, in rows without a token and in padding, too, or as the gradient
// so far, which is in its place unless something else reads it.
void begin_table(const EmbedGrad& op, const Buffers& b, std::size_t bytes, CudaStream& s) {
  if (!op.sum)
    check(cudaMemsetAsync(b.out[0], 0, bytes, s.handle()), "cudaMemsetAsync");
  else if (b.in[3] != b.out[0])
    check(cudaMemcpyAsync(b.out[0], b.in[3], bytes, cudaMemcpyDefault, s.handle()),
          "cudaMemcpyAsync");
}

// Positions beyond the sequence have no gradient.
void clear_positions(const EmbedGrad& op, const Buffers& b, std::size_t row_bytes, CudaStream& s) {
  if (op.positions == op.sequence) return;
  check(cudaMemsetAsync(as<std::byte>(b.out[1]) + idx(op.sequence) * row_bytes, 0,
                        idx(op.positions - op.sequence) * row_bytes, s.handle()),
        "cudaMemsetAsync");
}

}  // namespace

std::unique_ptr<Kernel> bind(const Embed& op, const Operands& operands) {
  const EmbedShape shape{.tokens = operands.out_shape()[0],
                         .sequence = op.sequence,
                         .channels = operands.stored_out().back()};
  return launch_kernel(
      "embed", [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
        embed(shape, as<std::int32_t>(b.in[0]), b.in[2], b.in[3], b.out[0], dtype, s.handle());
      });
}

std::unique_ptr<Kernel> bind(const EmbedGrad& op, const Operands& operands) {
  const EmbedShape shape{.tokens = operands.in_shape(0)[0],
                         .sequence = op.sequence,
                         .channels = operands.stored_in(0).back()};
  return launch_kernel(
      "embed_runs + embed_joins + embed_positions",
      [op, shape, bytes = operands.out().layout.bytes, dtype = operands.dtype_out()](
          const Buffers& b, CudaStream& s) {
        begin_table(op, b, bytes, s);
        clear_positions(op, b, idx(shape.channels) * size_bytes(dtype), s);
        embed_grad(shape,
                   {.d_x = b.in[0],
                    .tokens = as<std::int32_t>(b.in[1]),
                    .order = as<std::int32_t>(b.in[2]),
                    .d_table = b.out[0],
                    .d_positions = b.out[1]},
                   dtype, b.workspace, s.handle());
      },
      embed_grad_workspace(shape));
}

}  // namespace warpstep::cuda
