// Chooses the implementation of a convolution and of its adjoints: our own for small maps and eight
// channels, else oneDNN's, else im2col where oneDNN has no kernel for the shape on this CPU. All
// are bound by arithmetic. Figures per layer: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

ConvShapes shapes(const Conv& op, const Value& x, const Value& weight, const Value& z) {
  return {op, x.type, weight.type, z.type, descriptor(x), descriptor(z), descriptor(weight)};
}

dnnl::memory::desc bias_descriptor(const Conv& op) {
  return {{op.out}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

// oneDNN's kernel, else im2col(conv, shape of x, shape of z). Where oneDNN has none, layouts.cpp
// keeps all operands plain.
using MakeIm2col = std::unique_ptr<Kernel> (*)(const Conv&, const Shape&, const Shape&);
std::unique_ptr<Kernel> make(const Operands& operands, const ConvShapes& s, ConvDirection direction,
                             std::vector<Argument> arguments, MakeIm2col im2col) {
  const Context& context = operands.context;
  if (auto plan = plan_conv(context.engine, s, direction, context.exact_math))
    return primitive_kernel(context.engine, *plan, arguments);
  for (const auto* ids : {&operands.node.in, &operands.node.out})
    for (const int id : *ids)
      if (const Value& value = operands.graph.value(id); !value.layout.tag.empty())
        fail<Error>("cpu: {} has no kernel for {} stored as {}", operands.node.title(), value.name,
                    value.layout.tag);
  return im2col(s.op, s.x.shape, s.z.shape);
}

EightChannels eight_channels(const Shape& z) {
  return {z[0], z[1], z[2], z[3]};
}

dnnl::memory::desc weight_descriptor(const Conv& op, const Value& weight) {
  return grouped(descriptor(weight), op);
}

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  if (takes_small_maps(op, operands.in(0), operands.out()))
    return small_map_conv(operands.context.engine, op, operands.in_shape(0), operands.out_shape());
  const ConvShapes s = shapes(op, operands.in(0), operands.in(1), operands.out());
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, s.x_md, false, 0},
      {DNNL_ARG_WEIGHTS, weight_descriptor(op, operands.in(1)), false, 1},
      {DNNL_ARG_DST, s.z_md, true, 0}};
  if (op.bias) arguments.push_back({DNNL_ARG_BIAS, bias_descriptor(op), false, 2});
  return make(operands, s, ConvDirection::forward, std::move(arguments), im2col_conv);
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  if (takes_small_maps(op.conv, operands.out(), operands.in(0)))
    return small_map_data_grad(operands.context.engine, op.conv, op.input, operands.in_shape(0));
  if (takes_eight_channels(op.conv, operands.out(), operands.in(0)))
    return eight_channels_data_grad(eight_channels(operands.in_shape(0)));
  const ConvShapes s = shapes(op.conv, operands.out(), operands.in(1), operands.in(0));
  return make(operands, s, ConvDirection::data,
              {{DNNL_ARG_DIFF_DST, s.z_md, false, 0},
               {DNNL_ARG_WEIGHTS, weight_descriptor(op.conv, operands.in(1)), false, 1},
               {DNNL_ARG_DIFF_SRC, s.x_md, true, 0}},
              im2col_data_grad);
}

// Our own kernels write only plain weights. Where a scope is recomputed, the weight may have
// another layout although the images are plain: it was chosen by the forward half's images.
std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const bool plain = operands.out().layout.tag.empty();
  if (plain && takes_small_maps(op.conv, operands.in(0), operands.in(1)))
    return small_map_weight_grad(operands.context.engine, op.conv, operands.in_shape(0),
                                 operands.in_shape(1));
  if (plain && takes_eight_channels(op.conv, operands.in(0), operands.in(1)))
    return eight_channels_weight_grad(eight_channels(operands.in_shape(1)), op.conv.bias);
  const ConvShapes s = shapes(op.conv, operands.in(0), operands.out(), operands.in(1));
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, s.x_md, false, 0},
      {DNNL_ARG_DIFF_DST, s.z_md, false, 1},
      {DNNL_ARG_DIFF_WEIGHTS, weight_descriptor(op.conv, operands.out()), true, 0}};
  if (op.conv.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, bias_descriptor(op.conv), true, 1});
  return make(operands, s, ConvDirection::weights, std::move(arguments), im2col_weight_grad);
}

}  // namespace warpstep::cpu
