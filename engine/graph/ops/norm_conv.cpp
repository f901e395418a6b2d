#include "engine/graph/ops/norm_conv.h"

#include "engine/core/error.h"

namespace warpstep {
namespace {

// Operands [first, last) are one number per channel, of `dtype`.
void require_channels(std::string_view op, const Types& in, std::size_t first, std::size_t last,
                      DType dtype, std::int64_t channels) {
  for (std::size_t i = first; i < last; ++i)
    if (in[i] != Type{dtype, {channels}})
      fail<ShapeError>("{} of {} channels needs {} {} as operand {}, got {}", op, channels,
                       name(dtype), channels, i, in[i].text());
}

void require_images(std::string_view op, const Type& images, const Type& same) {
  if (images.shape.rank() != 4 || same != images)
    fail<ShapeError>("{} takes images [N,H,W,C] twice, not {} and {}", op, images.text(),
                     same.text());
}

void require_plain(std::string_view op, const Conv& conv) {
  if (conv.bias || conv.relu || conv.pool)
    fail<ShapeError>("{} needs a convolution without bias, relu and pool, got {}", op, text(conv));
}

std::size_t inputs(Prologue prologue) {
  switch (prologue) {
    case Prologue::none: return 2;
    case Prologue::norm: return 4;
    case Prologue::join: return 5;
    case Prologue::join_norms: break;
  }
  return 7;
}

// A few numbers an element, every operand once.
Cost elementwise(const Types& in, const Types& out, double flops) {
  return {flops * static_cast<double>(in[0].shape.count()), bytes_of(in) + bytes_of(out), 1};
}

}  // namespace

std::string_view name(Prologue prologue) {
  switch (prologue) {
    case Prologue::none: return "none";
    case Prologue::norm: return "norm";
    case Prologue::join: return "join";
    case Prologue::join_norms: return "join of two norms";
  }
  return "?";
}

Types infer(const NormConv& op, const Types& in) {
  require_plain(op.name, op.conv);
  require_inputs(op.name, in, inputs(op.prologue), inputs(op.prologue));
  Types out = infer(op.conv, {in[0], in[1]});
  const std::int64_t channels = in[0].shape[3];
  if (op.prologue >= Prologue::norm) require_channels(op.name, in, 2, 4, in[0].dtype, channels);
  if (op.joins()) require_images(op.name, in[0], in[4]);
  if (op.prologue == Prologue::join_norms)
    require_channels(op.name, in, 5, 7, in[0].dtype, channels);
  out.insert(out.end(), 2, {DType::f32, {op.conv.out}});
  if (op.joins()) out.push_back(in[0]);
  return out;
}

Cost cost(const NormConv& op, const Types& in, const Types& out) {
  Cost all = cost(op.conv, {in[0], in[1]}, {out[0]});
  all.bytes = bytes_of(in) + bytes_of(out);
  all.flops +=
      4 * static_cast<double>(out[0].shape.count()) +
      static_cast<double>(inputs(op.prologue) - 2) * static_cast<double>(in[0].shape.count());
  all.depth += row_count(out[0].shape);
  return all;
}

std::string text(const NormConv& op) {
  const std::string prologue =
      op.prologue == Prologue::none ? "" : fmt::format("{} in front, ", name(op.prologue));
  return fmt::format("{} {}+statistics", text(op.conv), prologue);
}

Types infer(const NormFinalize& op, const Types& in) {
  require_inputs(op.name, in, 6, 6);
  const std::int64_t channels = in[0].shape.count();
  require_channels(op.name, in, 0, 6, DType::f32, channels);
  const Type f32{DType::f32, {channels}}, narrow{op.dtype, {channels}};
  return {f32, f32, narrow, narrow};
}

Cost cost(const NormFinalize&, const Types& in, const Types& out) {
  return elementwise(in, out, 12);
}

std::string text(const NormFinalize& op) {
  return fmt::format("of {} rows", op.rows);
}

Types infer(const NormApply& op, const Types& in) {
  require_inputs(op.name, in, op.norm.add ? 6 : 5, op.norm.add ? 6 : 5);
  require_images(op.name, in[0], op.norm.add ? in[5] : in[0]);
  require_channels(op.name, in, 1, 5, DType::f32, in[0].shape[3]);
  return {in[0]};
}

Cost cost(const NormApply&, const Types& in, const Types& out) {
  return elementwise(in, out, 4);
}

std::string text(const NormApply& op) {
  return text(op.norm);
}

Types infer(const NormConvDataGrad& op, const Types& in) {
  require_plain(op.name, op.conv);
  require_inputs(op.name, in, 7, 7);
  const Types z = infer(op.conv, {in[2], in[1]});
  if (z[0] != in[0])
    fail<ShapeError>("{}: the gradient of {} is not {}", op.name, z[0].text(), in[0].text());
  const std::int64_t channels = in[2].shape[3];
  require_channels(op.name, in, 3, 7, DType::f32, channels);
  Types out{in[2]};
  out.insert(out.end(), 5, {DType::f32, {channels}});
  return out;
}

Cost cost(const NormConvDataGrad& op, const Types& in, const Types& out) {
  Cost all = cost(ConvDataGrad{op.conv, in[2].shape}, {in[0], in[1]}, {out[0]});
  all.bytes = bytes_of(in) + bytes_of(out);
  all.flops += 9 * static_cast<double>(out[0].shape.count());
  all.depth += row_count(out[0].shape);
  return all;
}

std::string text(const NormConvDataGrad& op) {
  return fmt::format("{} +relu +norm", text(op.conv));
}

Types infer(const NormGradApply& op, const Types& in) {
  require_inputs(op.name, in, 7, 7);
  require_images(op.name, in[0], in[1]);
  require_channels(op.name, in, 2, 7, DType::f32, in[0].shape[3]);
  return {in[0], {in[0].dtype, in[2].shape}, {in[0].dtype, in[2].shape}};
}

Cost cost(const NormGradApply&, const Types& in, const Types& out) {
  return elementwise(in, out, 4);
}

Types infer(const NormConvWeightGrad& op, const Types& in) {
  require_plain(op.name, op.conv);
  require_inputs(op.name, in, 4, 4);
  require_channels(op.name, in, 1, 3, in[0].dtype, in[0].shape[3]);
  return infer(ConvWeightGrad{op.conv}, {in[0], in[3]});
}

Cost cost(const NormConvWeightGrad& op, const Types& in, const Types& out) {
  Cost all = cost(ConvWeightGrad{op.conv}, {in[0], in[3]}, out);
  all.bytes = bytes_of(in) + bytes_of(out);
  all.flops += 3 * static_cast<double>(in[0].shape.count());
  return all;
}

std::string text(const NormConvWeightGrad& op) {
  return fmt::format("{} norm in front", text(op.conv));
}

}  // namespace warpstep
