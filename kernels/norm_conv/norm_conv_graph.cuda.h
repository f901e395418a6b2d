// The convolutions of engine/ops/norm_conv.h as graphs for cuDNN.
#pragma once

#include <string>

#include "engine/ops/norm_conv.h"
#include "kernels/conv/conv_graph.cuda.h"

namespace warpstep::cuda {

// uids of what the graphs read and write; x, w and y are ConvShape's.
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

dnn::Graph norm_conv_graph(std::string name, const NormConv& op, const ConvShape& shape);
// shape.y is the gradient d_z, shape.x what the norm in front reads and the shape of g, which is
// bound as joined_uid.
dnn::Graph norm_data_grad_graph(std::string name, const Conv& op, const ConvShape& shape);
dnn::Graph norm_weight_grad_graph(std::string name, const Conv& op, const ConvShape& shape);

}  // namespace warpstep::cuda
