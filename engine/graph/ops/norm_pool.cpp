#include "engine/graph/ops/norm_pool.h"

#include "engine/core/error.h"

namespace warpstep {

Types infer(const NormPool& op, const Types& in) {
  if (op.norm.relu || op.norm.add || !op.norm.training || op.norm.ranks > 1)
    fail<ShapeError>(
        "norm_pool needs a norm in training, on one rank, without relu and add, got {}",
        text(op.norm));
  const Types normed = infer(op.norm, in);
  Types out = infer(op.pool, {normed[0]});
  out.insert(out.end(), normed.begin() + 1, normed.end());
  return out;
}

// x is read twice, for its statistics and for what is pooled.
Cost cost(const NormPool& op, const Types& in, const Types& out) {
  const double taps = static_cast<double>(op.pool.window * op.pool.window);
  return {3 * static_cast<double>(in[0].shape.count()) +
              taps * static_cast<double>(out[0].shape.count()),
          bytes_of(in) + bytes_of(out) + static_cast<double>(in[0].bytes()),
          row_count(in[0].shape)};
}

std::string text(const NormPool& op) {
  return text(op.pool);
}

Types infer(const NormPoolGrad& op, const Types& in) {
  require_inputs(op.name, in, 6, 6);
  const Types pooled = infer(op.pool, {in[2]});
  if (in[0] != pooled[0] || in[1] != pooled[1])
    fail<ShapeError>("norm_pool.dgrad of {} takes {} and {}, not {} and {}", in[2].text(),
                     pooled[0].text(), pooled[1].text(), in[0].text(), in[1].text());
  const Type channels{in[0].dtype, {in[2].shape[3]}};
  for (std::size_t i = 3; i < 6; ++i)
    if (in[i] != Type{DType::f32, channels.shape})
      fail<ShapeError>("norm_pool.dgrad of {} needs f32 {} as operand {}, got {}", in[2].text(),
                       in[2].shape[3], i, in[i].text());
  return {in[2], channels, channels};
}

// Two passes over all that it reads.
Cost cost(const NormPoolGrad& op, const Types& in, const Types& out) {
  const double images = static_cast<double>(in[0].bytes() + in[1].bytes() + in[2].bytes());
  const std::int64_t overlap = (op.pool.window + op.pool.stride - 1) / op.pool.stride;
  return {
      (10 + 2 * static_cast<double>(overlap * overlap)) * static_cast<double>(in[2].shape.count()),
      bytes_of(in) + bytes_of(out) + images, row_count(in[2].shape)};
}

std::string text(const NormPoolGrad& op) {
  return text(op.pool);
}

}  // namespace warpstep
