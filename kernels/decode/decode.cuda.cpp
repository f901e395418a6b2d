// Binds decoding to its launchers.
#include "kernels/decode/decode.cuda.h"

#include "kernels/cuda/cuda.h"
#include "kernels/decode/cached_rows.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const EmbedAt& op, const Operands& operands) {
  const EmbedAtShape shape{.tokens = operands.out_shape()[0],
                           .channels = operands.out_shape()[1],
                           .sequence = op.sequence,
                           .table_row = operands.stored_in(2).back(),
                           .positions_row = operands.stored_in(3).back()};
  return launch_kernel("embed_at",
                       [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         embed_at(shape, as<std::int32_t>(b.in[0]), as<std::int32_t>(b.in[1]),
                                  b.in[2], b.in[3], b.out[0], dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const CachedAttention& op, const Operands& operands) {
  const CachedRows rows(op, operands.in_shape(0), operands.in_shape(1));
  const CachedAttentionShape shape{.sequences = rows.count / rows.length,
                                   .sequence = rows.length,
                                   .positions = rows.positions,
                                   .heads = rows.heads,
                                   .features = rows.features,
                                   .qkv_row = operands.stored_in(0).back()};
  return launch_kernel("cached_attention",
                       [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         cached_attention(shape, b.in[0], as<float>(b.in[1]),
                                          as<std::int32_t>(b.in[2]), b.out[0], dtype, s.handle());
                       });
}

}  // namespace warpstep::cuda
