#include "kernels/norm_conv/norm_conv.cuda.h"

#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/norm_conv/norm_conv_graph.cuda.h"

namespace warpstep::cuda {
namespace {

using Uids = std::vector<std::int64_t>;

// Enqueues the library's plan of `graph`, with the node's inputs and outputs bound as these uids.
std::unique_ptr<Kernel> planned_kernel(const Operands& operands, const dnn::Graph& graph, Uids in,
                                       Uids out) {
  dnn::Planned planned = operands.context.dnn->plan(graph);
  if (!planned.plan)
    fail<DeviceError>(
        "cuda: {} has no engine for {} ({}): {}; compile the step with options_for() "
        "of the backend",
        operands.context.dnn->version(), operands.node.title(), text(operands.node.op),
        planned.why_not);
  const std::shared_ptr<dnn::Plan> plan = std::move(planned.plan);
  return launch_kernel(
      plan->implementation(),
      [plan, in = std::move(in), out = std::move(out)](const Buffers& b, CudaStream& s) {
        std::array<dnn::Binding, 13> bindings;
        std::size_t bound = 0;
        for (std::size_t i = 0; i < in.size(); ++i) bindings[bound++] = {in[i], b.in[i]};
        for (std::size_t i = 0; i < out.size(); ++i) bindings[bound++] = {out[i], b.out[i]};
        plan->execute(s, std::span(bindings).first(bound), b.workspace);
      },
      plan->workspace_bytes());
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

// Shapes of a node before they are stored: none of its axes is padded, or there is no engine.
ConvShape conv_shape(const Type& x, const Shape& w, const Shape& y) {
  return {.dtype = x.dtype, .x = x.shape, .w = w, .y = y};
}

bool is_unpadded(const ConvShape& shape) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_bytes(shape.dtype));
  return shape.x[3] == shape.w[3] && shape.x[3] % vector == 0 && shape.y[3] % vector == 0;
}

// The graph of an op that a library is asked for.
template <class Op>
struct Asked;
template <>
struct Asked<NormConv> {
  static ConvShape shape(const NormConv& op, const Types& in) {
    return conv_shape(in[0], in[1].shape, infer(op.conv, {in[0], in[1]})[0].shape);
  }
  static dnn::Graph graph(const NormConv& op, const ConvShape& shape, const std::string& name) {
    return norm_conv_graph(name, op, shape);
  }
};
template <>
struct Asked<NormConvDataGrad> {
  static ConvShape shape(const NormConvDataGrad&, const Types& in) {
    return conv_shape(in[2], in[1].shape, in[0].shape);
  }
  static dnn::Graph graph(const NormConvDataGrad& op, const ConvShape& shape,
                          const std::string& name) {
    return norm_data_grad_graph(name, op.conv, shape);
  }
};
template <>
struct Asked<NormConvWeightGrad> {
  static ConvShape shape(const NormConvWeightGrad& op, const Types& in) {
    return conv_shape(in[0], weight_shape(op.conv, in[0].shape[3]), in[3].shape);
  }
  static dnn::Graph graph(const NormConvWeightGrad& op, const ConvShape& shape,
                          const std::string& name) {
    return norm_weight_grad_graph(name, op.conv, shape);
  }
};

template <class Op>
dnn::Graph graph_of(const Op& op, const Operands& operands) {
  const Types in = operands.graph.types(operands.node.in);
  return Asked<Op>::graph(op, Asked<Op>::shape(op, in), operands.node.title());
}

}  // namespace

bool computes(const AnyOp& any, const Types& in, const Context& context) {
  return std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (requires { Asked<Op>::graph; }) {
          const ConvShape shape = Asked<Op>::shape(op, in);
          // cuDNN 9 has such engines in f16 alone, and takes its time to say so.
          return shape.dtype == DType::f16 && is_unpadded(shape) &&
                 context.dnn->supports(Asked<Op>::graph(op, shape, "asked"));
        } else {
          return false;
        }
      },
      any);
}

std::unique_ptr<Kernel> bind(const NormConv& op, const Operands& operands) {
  Uids out{ConvShape::y_uid, sum_uid, squares_uid};
  if (op.joins()) out.push_back(joined_uid);
  return planned_kernel(operands, graph_of(op, operands), inputs_of(op.prologue), out);
}

std::unique_ptr<Kernel> bind(const NormConvDataGrad& op, const Operands& operands) {
  return planned_kernel(operands, graph_of(op, operands),
                        {ConvShape::y_uid, ConvShape::w_uid, ConvShape::x_uid, gamma_uid, beta_uid,
                         mean_uid, inv_std_uid},
                        {joined_uid, d_gamma_uid, d_beta_uid, by_g_uid, by_x_uid, constant_uid});
}

std::unique_ptr<Kernel> bind(const NormConvWeightGrad& op, const Operands& operands) {
  return planned_kernel(operands, graph_of(op, operands),
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
