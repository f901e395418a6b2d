#include "engine/graph/ops/conv.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/ops/pointwise.h"

namespace warpstep {
namespace {

constexpr std::int64_t largest = std::int64_t{1} << 30;  // attribute; extents do not overflow

std::int64_t out_extent(const Conv& op, std::int64_t extent, std::string_view axis) {
  const std::int64_t reach = op.dilation * (op.kernel - 1) + 1;
  const std::int64_t padded = extent + 2 * op.padding;
  if (padded < reach)
    fail<ShapeError>(
        "a {0}x{0} kernel (reach {1}) does not fit the {2} of {3} with padding {4}; use a smaller "
        "kernel or more padding",
        op.kernel, reach, axis, extent, op.padding);
  return (padded - reach) / op.stride + 1;
}

// Terms per output element: kernel * kernel * C / groups.
double taps(const Conv& op, std::int64_t channels) {
  return static_cast<double>(op.kernel * op.kernel * channels / op.groups);
}

void validate(const Conv& op, const Type& x) {
  if (x.shape.rank() != 4) fail<ShapeError>("conv takes images [N,H,W,C], not {}", x.text());
  if (op.out < 1 || op.kernel < 1 || op.stride < 1 || op.padding < 0 || op.dilation < 1 ||
      op.groups < 1 || std::max({op.kernel, op.padding, op.dilation}) > largest)
    fail<ShapeError>("conv {} has an attribute out of range", text(op));
  if (x.shape[3] % op.groups != 0 || op.out % op.groups != 0)
    fail<ShapeError>("{} groups do not divide both {} input and {} output channels", op.groups,
                     x.shape[3], op.out);
}

}  // namespace

Shape weight_shape(const Conv& op, std::int64_t channels) {
  return {op.out, op.kernel, op.kernel, channels / op.groups};
}

Shape convolved(const Conv& op, const Shape& x) {
  return {x[0], out_extent(op, x[1], "height"), out_extent(op, x[2], "width"), op.out};
}

Types infer(const Conv& op, const Types& in) {
  require_inputs(op.name, in, op.bias ? 3 : 2, op.bias ? 3 : 2);
  const Shape& x = in[0].shape;
  validate(op, in[0]);
  if (in[1].shape != weight_shape(op, x[3]))
    fail<ShapeError>("weight is {}, but input {} needs {}", in[1].shape.text(), x.text(),
                     weight_shape(op, x[3]).text());
  require_same_dtype(op.name, in[0], in[1]);
  const Type z{in[0].dtype, convolved(op, x)};
  return op.pool ? infer(*op.pool, {z}) : Types{z};
}

void grad(const Conv& op, Adjoint& adjoint) {
  Conv plain = op;
  plain.relu = false;
  Tensor d_z = adjoint.d_out();
  if (op.relu) d_z = adjoint.record(Phase::data_grad, ReluGrad{}, {d_z, adjoint.out()})[0];
  const auto with_index = [&](std::vector<Tensor> in) {
    if (op.pool) in.push_back(adjoint.out(1));
    return in;
  };
  if (adjoint.wants(1)) {
    const auto d =
        adjoint.record(Phase::weight_grad, ConvWeightGrad{plain}, with_index({adjoint.in(0), d_z}));
    adjoint.give(1, d[0]);
    if (op.bias) adjoint.give(2, d[1]);
  }
  if (adjoint.wants(0))
    adjoint.give(0,
                 adjoint.record(Phase::data_grad, ConvDataGrad{plain, adjoint.in(0).type().shape},
                                with_index({d_z, adjoint.in(1)}))[0]);
}

Cost cost(const Conv& op, const Types& in, const Types& out) {
  const double depth = taps(op, in[0].shape[3]);
  return {2 * depth * static_cast<double>(convolved(op, in[0].shape).count()),
          bytes_of(in) + bytes_of(out), depth};
}

std::string text(const Conv& op) {
  std::string s = fmt::format("{0}x{0}", op.kernel);
  if (op.stride != 1) s += fmt::format(" s{}", op.stride);
  if (op.padding != 0) s += fmt::format(" p{}", op.padding);
  if (op.dilation != 1) s += fmt::format(" d{}", op.dilation);
  if (op.groups != 1) s += fmt::format(" g{}", op.groups);
  if (op.bias) s += " +bias";
  if (op.relu) s += " +relu";
  if (op.pool)
    s += fmt::format("{0} +pool {1}x{1}", op.pool->relu ? " +relu" : "", op.pool->window);
  return s;
}

Types infer(const ConvDataGrad& op, const Types& in) {
  const std::size_t operands = 2 + (op.conv.pool ? 1 : 0) + (op.relu ? 1 : 0);
  require_inputs(op.name, in, operands, operands);
  if (const Type x{in[0].dtype, op.input}; op.relu && in.back() != x)
    fail<ShapeError>("{} is masked by {}, not {}", op.name, x.text(), in.back().text());
  return {{in[0].dtype, op.input}};
}

Cost cost(const ConvDataGrad& op, const Types& in, const Types& out) {
  const double depth =
      static_cast<double>(op.conv.kernel * op.conv.kernel * op.conv.out / op.conv.groups);
  return {
      2 * taps(op.conv, op.input[3]) * static_cast<double>(convolved(op.conv, op.input).count()),
      bytes_of(in) + bytes_of(out), depth};
}

std::string text(const ConvDataGrad& op) {
  return text(op.conv) + (op.relu ? ", masked" : "");
}

Types infer(const ConvWeightGrad& op, const Types& in) {
  require_inputs(op.name, in, op.conv.pool ? 3 : 2, op.conv.pool ? 3 : 2);
  Types out{{in[0].dtype, weight_shape(op.conv, in[0].shape[3])}};
  if (op.conv.bias) out.push_back({in[0].dtype, {op.conv.out}});
  return out;
}

Cost cost(const ConvWeightGrad& op, const Types& in, const Types& out) {
  const Shape d_z = convolved(op.conv, in[0].shape);
  const double depth = static_cast<double>(d_z[0] * d_z[1] * d_z[2]);
  return {2 * taps(op.conv, in[0].shape[3]) * static_cast<double>(d_z.count()),
          bytes_of(in) + bytes_of(out), depth};
}

std::string text(const ConvWeightGrad& op) {
  return text(op.conv);
}

}  // namespace warpstep
