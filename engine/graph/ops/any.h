// The closed set of ops, and what can be asked of any of them.
#pragma once

#include <variant>

#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/custom.h"
#include "engine/graph/ops/dropout.h"
#include "engine/graph/ops/linear.h"
#include "engine/graph/ops/loss.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/norm_conv.h"
#include "engine/graph/ops/pixels.h"
#include "engine/graph/ops/pointwise.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/update.h"

namespace warpstep {

using AnyOp =
    std::variant<Normalize, Conv, ConvDataGrad, ConvWeightGrad, Relu, ReluGrad, Add, Reshape,
                 Reorder, Upload, MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad, BatchNorm,
                 BatchNormGrad, Dropout, Linear, LinearDataGrad, LinearWeightGrad, LogSoftmax,
                 LogSoftmaxGrad, Nll, NllGrad, Top1, SoftmaxXent, LossGrad, Clock, Update,
                 UpdateAll, CheckGradients, Accumulate, LarsScale, Average, Report, Augment, Custom,
                 NormConv, NormFinalize, NormApply, NormConvDataGrad, NormGradApply,
                 NormConvWeightGrad>;

std::string_view name(const AnyOp& op);
std::string text(const AnyOp& op);  // its attributes; empty where there are none
Types infer(const AnyOp& op, const Types& in);
void grad(const AnyOp& op, Adjoint& adjoint);  // throws Error for an op that is itself an adjoint
Cost cost(const AnyOp& op, const Types& in, const Types& out);

// The output is the input under another shape: no call, one buffer.
inline bool is_view(const AnyOp& op) {
  return std::holds_alternative<Reshape>(op);
}

// The inputs whose buffer output 0 may take over when they are not needed any more (element i
// depends on element i).
std::vector<int> in_place_inputs(const AnyOp& op);

}  // namespace warpstep
