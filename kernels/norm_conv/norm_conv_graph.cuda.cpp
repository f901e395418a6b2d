#include "kernels/norm_conv/norm_conv_graph.cuda.h"

namespace warpstep::cuda {
namespace {

using Direction = dnn::Convolution::Direction;
using Mode = dnn::Pointwise::Mode;

// A graph as it grows: every step's result is virtual until it is written to a tensor of the call.
class Growing {
 public:
  Growing(std::string name, const ConvShape& shape) : shape_(shape) {
    graph_.name = std::move(name);
    for (const auto& [uid, stored] :
         {std::pair{ConvShape::x_uid, &shape.x}, std::pair{ConvShape::w_uid, &shape.w},
          std::pair{ConvShape::y_uid, &shape.y}})
      graph_.tensors.push_back(tensor_of(uid, shape.dtype, *stored));
  }

  // One number a channel of the image `like`.
  std::int64_t channels(std::int64_t uid, DType dtype, const Shape& like) {
    graph_.tensors.push_back(dnn::nhwc(uid, dtype, 1, 1, 1, like[3]));
    return uid;
  }
  std::int64_t images(std::int64_t uid) {
    graph_.tensors.push_back(tensor_of(uid, shape_.dtype, shape_.x));
    return uid;
  }
  // Of x's shape, never in memory.
  std::int64_t between(DType dtype = DType::f32) {
    graph_.tensors.push_back(dnn::virtual_like(graph_.tensor(ConvShape::x_uid), next_, dtype));
    return next_++;
  }
  void pointwise(Mode mode, std::int64_t x, std::int64_t b, std::int64_t y) {
    graph_.operations.push_back(dnn::Pointwise{mode, x, b, y});
  }
  std::int64_t pointwise(Mode mode, std::int64_t x, std::int64_t b) {
    const std::int64_t y = between();
    pointwise(mode, x, b, y);
    return y;
  }
  void add(const dnn::Operation& operation) { graph_.operations.push_back(operation); }

  // scale x + bias, both in the dtype of the images, as the engines want them.
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

}  // namespace

dnn::Graph norm_conv_graph(std::string name, const NormConv& op, const ConvShape& shape) {
  Growing graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op.conv, Direction::forward);
  if (op.prologue != Prologue::none) {
    std::int64_t sum = graph.normed(ConvShape::x_uid, scale_uid, bias_uid);
    if (op.joins()) {
      std::int64_t beside = graph.images(shortcut_uid);
      if (op.prologue == Prologue::join_norms)
        beside = graph.normed(beside, shortcut_scale_uid, shortcut_bias_uid);
      sum = graph.pointwise(Mode::add, sum, beside);
    }
    // Tensor cores read the images' dtype.
    conv.x = op.joins() ? graph.images(joined_uid) : graph.between(shape.dtype);
    graph.pointwise(Mode::relu, sum, 0, conv.x);
  }
  graph.add(conv);
  graph.add(dnn::ChannelSums{ConvShape::y_uid, graph.channels(sum_uid, DType::f32, shape.y),
                             graph.channels(squares_uid, DType::f32, shape.y)});
  return graph.take();
}

// The only form that has engines: the mask is made again from what the norm reads.
dnn::Graph norm_data_grad_graph(std::string name, const Conv& op, const ConvShape& shape) {
  Growing graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op, Direction::data_grad);
  const auto channels = [&](std::int64_t uid) { return graph.channels(uid, DType::f32, shape.x); };
  conv.x = graph.between();
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

dnn::Graph norm_weight_grad_graph(std::string name, const Conv& op, const ConvShape& shape) {
  Growing graph(std::move(name), shape);
  dnn::Convolution conv = convolution_of(op, Direction::weight_grad);
  const std::int64_t sum = graph.normed(ConvShape::x_uid, scale_uid, bias_uid);
  conv.x = graph.between(shape.dtype);
  graph.pointwise(Mode::relu, sum, 0, conv.x);
  graph.add(conv);
  return graph.take();
}

}  // namespace warpstep::cuda
