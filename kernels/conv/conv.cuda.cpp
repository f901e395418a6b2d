// Convolutions and their adjoints on the GPU: the node as a graph for cuDNN, then its plan as a
// kernel. Bound by arithmetic on most layers; measured figures go to bench/RECORDS.md.
#include "engine/core/error.h"
#include "kernels/conv/conv_graph.cuda.h"
#include "kernels/cuda/cuda.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {

dnn::Tensor tensor_of(std::int64_t uid, DType dtype, const Shape& shape) {
  return dnn::nhwc(uid, dtype, shape[0], shape[1], shape[2], shape[3]);
}

dnn::Convolution convolution_of(const Conv& op, dnn::Convolution::Direction direction) {
  return {.direction = direction,
          .x = ConvShape::x_uid,
          .w = ConvShape::w_uid,
          .y = ConvShape::y_uid,
          .padding = op.padding,
          .stride = op.stride,
          .dilation = op.dilation};
}

dnn::Graph forward_graph(std::string name, const Conv& op, const ConvShape& shape, bool fused) {
  dnn::Convolution conv = convolution_of(op, dnn::Convolution::Direction::forward);
  const dnn::Tensor y = tensor_of(ConvShape::y_uid, shape.dtype, shape.y);
  dnn::Graph graph{.name = std::move(name),
                   .tensors = {tensor_of(ConvShape::x_uid, shape.dtype, shape.x),
                               tensor_of(ConvShape::w_uid, shape.dtype, shape.w), y},
                   .operations = {}};
  const bool bias = fused && op.bias, relu = fused && op.relu;
  std::int64_t next = ConvShape::bias_uid + 1;
  // The last operation writes y; the results before it are virtual and never reach memory.
  const auto intermediate = [&] {
    graph.tensors.push_back(dnn::virtual_like(y, next));
    return next++;
  };
  conv.y = bias || relu ? intermediate() : ConvShape::y_uid;
  graph.operations.push_back(conv);
  std::int64_t last = conv.y;
  if (bias) {
    graph.tensors.push_back(dnn::nhwc(ConvShape::bias_uid, shape.dtype, 1, 1, 1, shape.y[3]));
    const std::int64_t sum = relu ? intermediate() : ConvShape::y_uid;
    graph.operations.push_back(
        dnn::Pointwise{dnn::Pointwise::Mode::add, last, ConvShape::bias_uid, sum});
    last = sum;
  }
  if (relu)
    graph.operations.push_back(
        dnn::Pointwise{dnn::Pointwise::Mode::relu, last, 0, ConvShape::y_uid});
  return graph;
}

dnn::Graph gradient_graph(std::string name, const Conv& op, const ConvShape& shape,
                          dnn::Convolution::Direction direction) {
  return {.name = std::move(name),
          .tensors = {tensor_of(ConvShape::x_uid, shape.dtype, shape.x),
                      tensor_of(ConvShape::w_uid, shape.dtype, shape.w),
                      tensor_of(ConvShape::y_uid, shape.dtype, shape.y)},
          .operations = {convolution_of(op, direction)}};
}

namespace {

using Direction = dnn::Convolution::Direction;

std::shared_ptr<dnn::Plan> plan(const Operands& operands, const dnn::Graph& graph) {
  dnn::Planned planned = operands.context.dnn->plan(graph);
  if (!planned.plan)
    fail<DeviceError>("cuda: {} has no engine for {} ({}): {}; another --precision may have one",
                      operands.context.dnn->version(), operands.node.title(),
                      text(operands.node.op), planned.why_not);
  return std::move(planned.plan);
}

}  // namespace

// Bias and relu are part of cuDNN's graph if it has an engine for the whole graph; else they are a
// pass of our own over y, which listings show.
namespace {

void refuse_pool(const Operands& operands, const Conv& op) {
  if (op.pool)
    fail<Error>("cuda: {} ({}) was made by the fusion {}, which the CUDA backend does not support",
                operands.node.title(), text(operands.node.op), fusion::conv_pool);
}

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  refuse_pool(operands, op);
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_in(0),
                        .w = operands.stored_in(1),
                        .y = operands.stored_out()};
  const std::string title = operands.node.title();
  std::shared_ptr<dnn::Plan> planned =
      operands.context.dnn->plan(forward_graph(title, op, shape, true)).plan;
  const bool fused = planned != nullptr;
  if (!fused) planned = plan(operands, forward_graph(title, op, shape, false));
  const bool after = !fused && (op.bias || op.relu);
  return launch_kernel(
      planned->implementation() + (after ? " + bias_relu" : ""),
      [planned, op, after, rows = rows_of(shape.y), channels = shape.y.back(), dtype = shape.dtype](
          const Buffers& b, CudaStream& s) {
        std::array bindings{dnn::Binding{ConvShape::x_uid, b.in[0]},
                            dnn::Binding{ConvShape::w_uid, b.in[1]},
                            dnn::Binding{ConvShape::y_uid, b.out[0]},
                            dnn::Binding{ConvShape::bias_uid, op.bias ? b.in[2] : nullptr}};
        const std::size_t bound = op.bias && !after ? 4 : 3;
        planned->execute(s, std::span(bindings).first(bound), b.workspace);
        if (!after) return;
        const auto add = are_whole_vectors(channels, dtype) ? bias_relu : bias_relu_unaligned;
        add(b.out[0], op.bias ? b.in[2] : nullptr, op.relu, rows, channels, dtype, s.handle());
      },
      planned->workspace_bytes());
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  refuse_pool(operands, op.conv);
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_out(),
                        .w = operands.stored_in(1),
                        .y = operands.stored_in(0)};
  const auto planned =
      plan(operands, gradient_graph(operands.node.title(), op.conv, shape, Direction::data_grad));
  return launch_kernel(
      planned->implementation(),
      [planned](const Buffers& b, CudaStream& s) {
        const std::array bindings{dnn::Binding{ConvShape::y_uid, b.in[0]},
                                  dnn::Binding{ConvShape::w_uid, b.in[1]},
                                  dnn::Binding{ConvShape::x_uid, b.out[0]}};
        planned->execute(s, bindings, b.workspace);
      },
      planned->workspace_bytes());
}

// cuDNN writes d_weight in the dtype of its inputs; d_bias is a pass of our own over d_z.
std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  refuse_pool(operands, op.conv);
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_in(0),
                        .w = operands.stored_out(),
                        .y = operands.stored_in(1)};
  const auto planned =
      plan(operands, gradient_graph(operands.node.title(), op.conv, shape, Direction::weight_grad));
  const std::int64_t rows = rows_of(shape.y), channels = shape.y.back();
  const std::size_t sums = op.conv.bias ? column_sums_workspace(rows, channels) : 0;
  return launch_kernel(
      planned->implementation() + (op.conv.bias ? " + column_sums" : ""),
      [planned, rows, channels, bias = op.conv.bias, dtype = shape.dtype,
       ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        const std::array bindings{dnn::Binding{ConvShape::x_uid, b.in[0]},
                                  dnn::Binding{ConvShape::y_uid, b.in[1]},
                                  dnn::Binding{ConvShape::w_uid, b.out[0]}};
        planned->execute(s, bindings, b.workspace);
        if (!bias) return;
        if (are_whole_vectors(channels, dtype))
          column_sums(b.in[1], b.out[1], rows, channels, dtype, b.workspace, ticket.word(),
                      s.handle());
        else
          column_sums_unaligned(b.in[1], channels, b.out[1], rows, channels, dtype, s.handle());
      },
      std::max(planned->workspace_bytes(), sums));
}

}  // namespace warpstep::cuda
