// Embeddings of tokens and positions, and their adjoint, in double.
#include <algorithm>

#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Embed& op, const Operands& operands) {
  const std::int64_t tokens = operands.out_shape()[0], channels = operands.out_shape()[1],
                     sequence = op.sequence;
  return host_kernel("loops", [tokens, channels, sequence](const Buffers& b) {
    for (std::int64_t n = 0; n < tokens; ++n) {
      const double* of_token = as<double>(b.in[2]) + as<std::int32_t>(b.in[0])[n] * channels;
      const double* of_position = as<double>(b.in[3]) + n % sequence * channels;
      for (std::int64_t c = 0; c < channels; ++c)
        as<double>(b.out[0])[n * channels + c] = of_token[c] + of_position[c];
    }
  });
}

// Needs no order: sums in double do not depend on it where it matters.
std::unique_ptr<Kernel> bind(const EmbedGrad& op, const Operands& operands) {
  const std::int64_t tokens = operands.in_shape(0)[0], channels = operands.in_shape(0)[1];
  return host_kernel("loops", [op, tokens, channels](const Buffers& b) {
    double *d_table = as<double>(b.out[0]), *d_positions = as<double>(b.out[1]);
    if (!op.sum)
      std::fill_n(d_table, op.vocabulary * channels, 0.0);
    else if (b.in[3] != b.out[0])
      std::copy_n(as<double>(b.in[3]), op.vocabulary * channels, d_table);
    std::fill_n(d_positions, op.positions * channels, 0.0);
    for (std::int64_t n = 0; n < tokens; ++n) {
      const double* d_x = as<double>(b.in[0]) + n * channels;
      double* of_token = d_table + as<std::int32_t>(b.in[1])[n] * channels;
      double* of_position = d_positions + n % op.sequence * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        of_token[c] += d_x[c];
        of_position[c] += d_x[c];
      }
    }
  });
}

}  // namespace warpstep::ref
