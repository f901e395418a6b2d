// Convolutions fused with the batch norms around them: each op is a cuDNN graph of its convolution
// with the norm's pointwise operations before it or sums after it. computes() asks cuDNN whether it
// has an engine for such a graph, so that fusions without one are not made. The parts without a
// convolution are launches of norm_conv.cuda.cu.
#include "kernels/norm_conv/norm_conv.cuda.h"

#include "engine/core/error.h"
#include "engine/graph/ops/norm_conv.h"
#include "kernels/conv/conv_graph.cuda.h"
#include "kernels/cuda/planned.h"

namespace warpstep::cuda {
namespace {

// uids of the tensors that the graphs read and write; those of x, w and y are ConvShape's.
enum NormUid : std::int64_t {
  scale_uid = 4,
  bias_uid,
  shortcut_uid,
  shortcut_scale_uid,
  shortcut_bias_uid,
  joined_uid,
  sum_uid,
  squares_uid,
  mean_uid,
  inv_std_uid,
  gamma_uid,
  beta_uid,
  d_gamma_uid,
  d_beta_uid,
  by_g_uid,
  by_x_uid,
  constant_uid,
};

using Direction = dnn::Convolution::Direction;
using Mode = dnn::Pointwise::Mode;

// Builds a graph: results of operations are virtual tensors unless they are written to one of the
// call's tensors.
class GraphBuilder {
 public:
  GraphBuilder(std::string name, const ConvShape& shape) : shape_(shape) {
    graph_.name = std::move(name);
    for (const auto& [uid, stored] :
         {std::pair{ConvShape::x_uid, &shape.x}, std::pair{ConvShape::w_uid, &shape.w},
          std::pair{ConvShape::y_uid, &shape.y}})
      graph_.tensors.push_back(tensor_of(uid, shape.dtype, *stored));
  }

  // One number per channel of the image `like`.
  std::int64_t channels(std::int64_t uid, DType dtype, const Shape& like) {
    graph_.tensors.push_back(dnn::nhwc(uid, dtype, 1, 1, 1, like[3]));
    return uid;
  }
  std::int64_t images(std::int64_t uid) {
    graph_.tensors.push_back(tensor_of(uid, shape_.dtype, shape_.x));
    return uid;
  }
  // A virtual tensor of x's shape.
  std::int64_t intermediate(DType dtype = DType::f32) {
    graph_.tensors.push_back(dnn::virtual_like(graph_.tensor(ConvShape::x_uid), next_, dtype));
    return next_++;
  }
  void pointwise(Mode mode, std::int64_t x, std::int64_t b, std::int64_t y) {
    graph_.operations.push_back(dnn::Pointwise{mode, x, b, y});
  }
  std::int64_t pointwise(Mode mode, std::int64_t x, std::int64_t b) {
    const std::int64_t y = intermediate();
    pointwise(mode, x, b, y);
    return y;
  }
  void add(const dnn::Operation& operation) { graph_.operations.push_back(operation); }

  // scale x + bias, both in the dtype of the images, as the engines require.
  std::int64_t normed(std::int64_t x, std::int64_t scale, std::int64_t bias) {
    channels(scale, shape_.dtype, shape_.x);
    channels(bias, shape_.dtype, shape_.x);
    return pointwise(Mode::add, pointwise(Mode::multiply, x, scale), bias);
  }

  dnn::Graph take() { return std::move(graph_); }

 private:
  const ConvShape& shape_;
  dnn::Graph graph_;
  std::int64_t next_ = 100;
};

// y = conv(prologue(x)) and the sums of y's channels; the prologue is a norm with relu, maybe with
// the sum of a residual block before the relu.
dnn::Graph norm_conv_graph(std::string name, const NormConv& op, const ConvShape& shape) {
  GraphBuilder graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op.conv, Direction::forward);
  if (op.prologue != Prologue::none) {
    std::int64_t sum = graph.normed(ConvShape::x_uid, scale_uid, bias_uid);
    if (op.joins()) {
      std::int64_t shortcut = graph.images(shortcut_uid);
      if (op.prologue == Prologue::join_norms)
        shortcut = graph.normed(shortcut, shortcut_scale_uid, shortcut_bias_uid);
      sum = graph.pointwise(Mode::add, sum, shortcut);
    }
    // Tensor cores read the images' dtype.
    conv.x = op.joins() ? graph.images(joined_uid) : graph.intermediate(shape.dtype);
    graph.pointwise(Mode::relu, sum, 0, conv.x);
  }
  graph.add(conv);
  graph.add(dnn::ChannelSums{ConvShape::y_uid, graph.channels(sum_uid, DType::f32, shape.y),
                             graph.channels(squares_uid, DType::f32, shape.y)});
  return graph.take();
}

// g = the convolution's data gradient, masked by the relu of the norm before it, and the sums for
// that norm's gradient. shape.y is the gradient d_z; shape.x is the shape of the norm's input and
// of g, which is bound as joined_uid. The mask is computed again from the norm's input: no other
// form has an engine.
dnn::Graph norm_data_grad_graph(std::string name, const Conv& op, const ConvShape& shape) {
  GraphBuilder graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op, Direction::data_grad);
  const auto channels = [&](std::int64_t uid) { return graph.channels(uid, DType::f32, shape.x); };
  conv.x = graph.intermediate();
  graph.add(conv);
  const std::int64_t mean = channels(mean_uid), inv_std = channels(inv_std_uid),
                     gamma = channels(gamma_uid), beta = channels(beta_uid);
  std::int64_t y = graph.pointwise(Mode::subtract, ConvShape::x_uid, mean);
  y = graph.pointwise(Mode::multiply, y, inv_std);
  y = graph.pointwise(Mode::multiply, y, gamma);
  y = graph.pointwise(Mode::add, y, beta);
  const std::int64_t g = graph.images(joined_uid);
  graph.pointwise(Mode::relu_grad, y, conv.x, g);
  graph.add(dnn::NormGradSums{.x = ConvShape::x_uid,
                              .d_y = g,
                              .mean = mean,
                              .inv_std = inv_std,
                              .scale = gamma,
                              .d_scale = channels(d_gamma_uid),
                              .d_bias = channels(d_beta_uid),
                              .by_d_y = channels(by_g_uid),
                              .by_x = channels(by_x_uid),
                              .constant = channels(constant_uid)});
  return graph.take();
}

// The weight gradient of a convolution whose input is a norm with relu, computed again here.
dnn::Graph norm_weight_grad_graph(std::string name, const Conv& op, const ConvShape& shape) {
  GraphBuilder graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op, Direction::weight_grad);
  const std::int64_t sum = graph.normed(ConvShape::x_uid, scale_uid, bias_uid);
  conv.x = graph.intermediate(shape.dtype);
  graph.pointwise(Mode::relu, sum, 0, conv.x);
  graph.add(conv);
  return graph.take();
}

NormShape norm_shape(const BatchNorm& norm, std::int64_t rows, std::int64_t channels) {
  return {.rows = rows,
          .channels = channels,
          .real = channels,
          .relu = norm.relu,
          .epsilon = static_cast<float>(norm.epsilon),
          .momentum = norm.momentum};
}

Uids inputs_of(Prologue prologue) {
  Uids uids{ConvShape::x_uid, ConvShape::w_uid,   scale_uid,        bias_uid,
            shortcut_uid,     shortcut_scale_uid, shortcut_bias_uid};
  uids.resize(prologue == Prologue::none   ? 2
              : prologue == Prologue::norm ? 4
              : prologue == Prologue::join ? 5
                                           : 7);
  return uids;
}

// Logical shapes: the engines need values without padding, where both are equal.
ConvShape conv_shape(const Type& x, const Shape& w, const Shape& y) {
  return {.dtype = x.dtype, .x = x.shape, .w = w, .y = y};
}

bool is_unpadded(const ConvShape& shape) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_bytes(shape.dtype));
  return shape.x[3] == shape.w[3] && shape.x[3] % vector == 0 && shape.y[3] % vector == 0;
}

// The convolution's shapes and the cuDNN graph of an op.
template <class Op>
struct FusedGraph;
template <>
struct FusedGraph<NormConv> {
  static ConvShape shape(const NormConv& op, const Types& in) {
    return conv_shape(in[0], in[1].shape, infer(op.conv, {in[0], in[1]})[0].shape);
  }
  static dnn::Graph graph(const NormConv& op, const ConvShape& shape, const std::string& name) {
    return norm_conv_graph(name, op, shape);
  }
};
template <>
struct FusedGraph<NormConvDataGrad> {
  static ConvShape shape(const NormConvDataGrad&, const Types& in) {
    return conv_shape(in[2], in[1].shape, in[0].shape);
  }
  static dnn::Graph graph(const NormConvDataGrad& op, const ConvShape& shape,
                          const std::string& name) {
    return norm_data_grad_graph(name, op.conv, shape);
  }
};
template <>
struct FusedGraph<NormConvWeightGrad> {
  static ConvShape shape(const NormConvWeightGrad& op, const Types& in) {
    return conv_shape(in[0], weight_shape(op.conv, in[0].shape[3]), in[3].shape);
  }
  static dnn::Graph graph(const NormConvWeightGrad& op, const ConvShape& shape,
                          const std::string& name) {
    return norm_weight_grad_graph(name, op.conv, shape);
  }
};

template <class Op>
std::shared_ptr<dnn::Plan> plan_of(const Op& op, const Operands& operands) {
  const Types in = operands.graph.types(operands.node.in);
  return require_plan(
      operands, FusedGraph<Op>::graph(op, FusedGraph<Op>::shape(op, in), operands.node.title()),
      "compile the step with options_for() of the backend");
}

}  // namespace

bool computes(const AnyOp& any, const Types& in, const Context& context) {
  return std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (requires { FusedGraph<Op>::graph; }) {
          const ConvShape shape = FusedGraph<Op>::shape(op, in);
          // cuDNN 9 has such engines only in f16; not asking for others saves the time of a query.
          return shape.dtype == DType::f16 && is_unpadded(shape) &&
                 context.dnn->supports(FusedGraph<Op>::graph(op, shape, "asked"));
        } else {
          return std::is_same_v<Op, BatchNormGrad>;  // our own, of any form
        }
      },
      any);
}

std::unique_ptr<Kernel> bind(const NormConv& op, const Operands& operands) {
  Uids out{ConvShape::y_uid, sum_uid, squares_uid};
  if (op.joins()) out.push_back(joined_uid);
  return planned_kernel(plan_of(op, operands), inputs_of(op.prologue), out);
}

std::unique_ptr<Kernel> bind(const NormConvDataGrad& op, const Operands& operands) {
  return planned_kernel(plan_of(op, operands),
                        {ConvShape::y_uid, ConvShape::w_uid, ConvShape::x_uid, gamma_uid, beta_uid,
                         mean_uid, inv_std_uid},
                        {joined_uid, d_gamma_uid, d_beta_uid, by_g_uid, by_x_uid, constant_uid});
}

std::unique_ptr<Kernel> bind(const NormConvWeightGrad& op, const Operands& operands) {
  return planned_kernel(plan_of(op, operands),
                        {ConvShape::x_uid, scale_uid, bias_uid, ConvShape::y_uid},
                        {ConvShape::w_uid});
}

std::unique_ptr<Kernel> bind(const NormFinalize& op, const Operands& operands) {
  const NormShape shape = norm_shape(op.norm, op.rows, operands.in_shape(0).count());
  return launch_kernel("norm_finalize", [shape, op](const Buffers& b, CudaStream& s) {
    norm_finalize(shape,
                  {.sum = as<float>(b.in[0]),
                   .squares = as<float>(b.in[1]),
                   .gamma = as<float>(b.in[2]),
                   .beta = as<float>(b.in[3]),
                   .running_mean = as<float>(b.in[4]),
                   .running_var = as<float>(b.in[5]),
                   .mean = as<float>(b.out[0]),
                   .inv_std = as<float>(b.out[1]),
                   .scale = b.out[2],
                   .bias = b.out[3]},
                  op.dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const NormApply& op, const Operands& operands) {
  const Shape& x = operands.in_shape(0);
  const NormShape shape = norm_shape(op.norm, rows_of(x), x.back());
  return launch_kernel("batch_norm", [shape, add = op.norm.add, dtype = operands.dtype_out()](
                                         const Buffers& b, CudaStream& s) {
    batch_norm_apply(shape,
                     {.x = b.in[0],
                      .gamma = as<float>(b.in[1]),
                      .beta = as<float>(b.in[2]),
                      .shortcut = add ? b.in[5] : nullptr,
                      .y = b.out[0],
                      .mean = as<float>(b.in[3]),
                      .inv_std = as<float>(b.in[4])},
                     dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const NormGradApply&, const Operands& operands) {
  const Shape& x = operands.in_shape(0);
  const NormShape shape = norm_shape({}, rows_of(x), x.back());
  return launch_kernel("norm_grad_apply",
                       [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
                         norm_grad_apply(shape,
                                         {.g = b.in[0],
                                          .x = b.in[1],
                                          .d_gamma = as<float>(b.in[2]),
                                          .d_beta = as<float>(b.in[3]),
                                          .by_g = as<float>(b.in[4]),
                                          .by_x = as<float>(b.in[5]),
                                          .constant = as<float>(b.in[6]),
                                          .d_x = b.out[0],
                                          .narrow_d_gamma = b.out[1],
                                          .narrow_d_beta = b.out[2]},
                                         dtype, s.handle());
                       });
}

}  // namespace warpstep::cuda
