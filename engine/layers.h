// What model files are written with. Each function records one op and, for layers with weights, its
// parameters under PyTorch's names and with PyTorch's default initialisation: uniform in +-1 /
// sqrt(fan_in) for weights and biases (torch.nn.Conv2d and torch.nn.Linear, reset_parameters).
#pragma once

#include "engine/graph.h"

namespace warpstep {

// images u8 [N,H,W,C] -> (x / 255 - mean[c]) / std[c]. Needs mean and std of C elements, std above
// 0.
Tensor normalize(Tensor images, std::span<const float> mean, std::span<const float> std,
                 Where where = Where::current());

// images f32 [N,H,W,C] that the loader has normalised -> the same numbers in the dtype that the
// step computes in, stored as its kernels want them.
Tensor convert(Tensor images, Where where = Where::current());

// images u8 [any,H,W,C], rows i32 [N,12], a RowPlan each -> [N,out.height,out.width,C], see
// engine/core/pixels.h.
Tensor augment(Tensor images, Tensor rows, const PixelPlan& plan, ImageExtent out,
               Where where = Where::current());

// Parameters `name`.weight and `name`.bias.
Tensor conv(std::string name, Tensor x, Conv op, Where where = Where::current());
// x [N,K]. Behind a flatten of images the weight's columns keep PyTorch's NCHW order outside of the
// engine.
Tensor linear(std::string name, Tensor x, Linear op, Where where = Where::current());

Tensor relu(Tensor x, Where where = Where::current());
Tensor max_pool(Tensor x, MaxPool op = {}, Where where = Where::current());
Tensor flatten(Tensor x, Where where = Where::current());  // [N,...] -> [N,F]
Tensor add(Tensor a, Tensor b, Where where = Where::current());

// Mean cross-entropy and top-1 count of logits [N,K]; sets Graph::logits, loss and correct.
void cross_entropy(Tensor logits, Tensor labels, Where where = Where::current());
// The same with mixup: rows i32 [N,12], a RowPlan each, tell each row's weight and its pair's
// label.
void cross_entropy(Tensor logits, Tensor labels, Tensor rows, Where where = Where::current());

}  // namespace warpstep
