// Embedding and attention of tokens that continue a sequence, in double. The sums run in the order
// of embed.ref.cpp and attention.ref.cpp, so that a sequence in steps has the bits of the whole
// sequence.
#include <algorithm>
#include <vector>

#include "kernels/decode/cached_rows.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const EmbedAt& op, const Operands& operands) {
  const std::int64_t tokens = operands.out_shape()[0], channels = operands.out_shape()[1];
  return host_kernel("loops", [op, tokens, channels](const Buffers& b) {
    const std::int64_t position = *as<std::int32_t>(b.in[1]);
    for (std::int64_t n = 0; n < tokens; ++n) {
      const double* of_token = as<double>(b.in[2]) + as<std::int32_t>(b.in[0])[n] * channels;
      const double* of_position = as<double>(b.in[3]) + (position + n % op.sequence) * channels;
      for (std::int64_t c = 0; c < channels; ++c)
        as<double>(b.out[0])[n * channels + c] = of_token[c] + of_position[c];
    }
  });
}

namespace {

void attend_cached(const CachedRows& rows, const double* q, const double* cache,
                   std::int64_t visible, double* o) {
  std::vector<double> p(idx(visible));
  for (std::int64_t j = 0; j < visible; ++j) {
    double sum = 0;
    for (std::int64_t d = 0; d < rows.features; ++d) sum += q[d] * cache[j * rows.row() + d];
    p[idx(j)] = sum * rows.scale();
  }
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& each : p) sum += each = std::exp(each - most);
  std::fill_n(o, rows.features, 0.0);
  for (std::int64_t j = 0; j < visible; ++j)
    for (std::int64_t d = 0; d < rows.features; ++d)
      o[d] += p[idx(j)] / sum * cache[j * rows.row() + rows.channels() + d];
}

}  // namespace

std::unique_ptr<Kernel> bind(const CachedAttention& op, const Operands& operands) {
  return host_kernel("loops", [rows = CachedRows(op, operands.in_shape(0), operands.in_shape(1))](
                                  const Buffers& b) {
    const std::int64_t position = *as<std::int32_t>(b.in[2]), channels = rows.channels();
    for (std::int64_t n = 0; n < rows.count; ++n)
      std::copy_n(as<double>(b.in[0]) + n * 3 * channels + channels, rows.row(),
                  as<double>(b.in[1]) + rows.offset(n, position));
    for (std::int64_t n = 0; n < rows.count; ++n)
      for (std::int64_t head = 0; head < rows.heads; ++head) {
        const std::int64_t begin = head * rows.features;
        attend_cached(rows, as<double>(b.in[0]) + n * 3 * channels + begin,
                      as<double>(b.in[1]) + rows.sequence_offset(n) + begin,
                      position + n % rows.length + 1, as<double>(b.out[0]) + n * channels + begin);
      }
  });
}

}  // namespace warpstep::ref
