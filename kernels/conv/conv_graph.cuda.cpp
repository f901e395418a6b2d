#include "kernels/conv/conv_graph.cuda.h"

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
  // What the last operation writes is y; before it, values that never reach memory.
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

}  // namespace warpstep::cuda
