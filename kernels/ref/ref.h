// The reference backend: plain loops in double precision without libraries, against which every
// other backend is tested. Floating-point values of any dtype are stored as double, in rows of the
// logical shape; u8 and i32 are stored unchanged.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::ref {

// sums [channels] of x [count / channels, channels] over its rows.
void column_sums(const double* x, std::int64_t count, std::int64_t channels, double* sums);

// One overload an op, defined in kernels/*/*.ref.cpp. An op without one does not compile, and the
// message names it.
std::unique_ptr<Kernel> bind(const Normalize&, const Operands&);
std::unique_ptr<Kernel> bind(const Augment&, const Operands&);
std::unique_ptr<Kernel> bind(const Conv&, const Operands&);
std::unique_ptr<Kernel> bind(const ConvDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const ConvWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Relu&, const Operands&);
std::unique_ptr<Kernel> bind(const ReluGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Add&, const Operands&);
std::unique_ptr<Kernel> bind(const Reorder&, const Operands&);
std::unique_ptr<Kernel> bind(const MaxPool&, const Operands&);
std::unique_ptr<Kernel> bind(const MaxPoolGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const AvgPool&, const Operands&);
std::unique_ptr<Kernel> bind(const AvgPoolGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const BatchNorm&, const Operands&);
std::unique_ptr<Kernel> bind(const BatchNormGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConv&, const Operands&);
std::unique_ptr<Kernel> bind(const NormFinalize&, const Operands&);
std::unique_ptr<Kernel> bind(const NormApply&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConvDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const NormGradApply&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConvWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Dropout&, const Operands&);
std::unique_ptr<Kernel> bind(const Linear&, const Operands&);
std::unique_ptr<Kernel> bind(const LinearDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const LinearWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands&);
std::unique_ptr<Kernel> bind(const LogSoftmaxGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Nll&, const Operands&);
std::unique_ptr<Kernel> bind(const NllGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Top1&, const Operands&);
std::unique_ptr<Kernel> bind(const SoftmaxXent&, const Operands&);
std::unique_ptr<Kernel> bind(const LossGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Clock&, const Operands&);
std::unique_ptr<Kernel> bind(const Update&, const Operands&);
std::unique_ptr<Kernel> bind(const UpdateAll&, const Operands&);
std::unique_ptr<Kernel> bind(const Upload&, const Operands&);
std::unique_ptr<Kernel> bind(const CheckGradients&, const Operands&);
std::unique_ptr<Kernel> bind(const Accumulate&, const Operands&);
std::unique_ptr<Kernel> bind(const LarsScale&, const Operands&);
std::unique_ptr<Kernel> bind(const Average&, const Operands&);
std::unique_ptr<Kernel> bind(const Report&, const Operands&);
std::unique_ptr<Kernel> bind(const Custom&, const Operands&);

}  // namespace warpstep::ref
