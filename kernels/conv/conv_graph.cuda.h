// A convolution node as a graph for cuDNN.
#pragma once

#include <string>

#include "engine/graph/ops/conv.h"
#include "kernels/cuda/dnn.h"

namespace warpstep::cuda {

// Stored shapes: x [N,H,W,C], w [out,kernel,kernel,C/groups], y [N,H',W',out].
struct ConvShape {
  static constexpr std::int64_t x_uid = 1, w_uid = 2, y_uid = 3, bias_uid = 4;
  DType dtype = DType::f32;
  Shape x, w, y;
};

dnn::Tensor tensor_of(std::int64_t uid, DType dtype, const Shape& stored);  // images or a weight
dnn::Convolution convolution_of(const Conv& op, dnn::Convolution::Direction direction);

// y = conv(x, w), and with `fused` also the op's bias and relu.
dnn::Graph forward_graph(std::string name, const Conv& op, const ConvShape& shape, bool fused);

// x from w and y (data_grad), or w from x and y (weight_grad); y is the gradient of the output.
dnn::Graph gradient_graph(std::string name, const Conv& op, const ConvShape& shape,
                          dnn::Convolution::Direction direction);

}  // namespace warpstep::cuda
