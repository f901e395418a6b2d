// The CPU backend: oneDNN for convolutions and matrix products, our own vector loops for the rest,
// one OpenMP team.
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  bool exact_math = false;
  std::int64_t block = 16;  // channels of a blocked layout: a vector register; 0: none is fast here
};

struct Operands : warpstep::Operands {
  const Context& context;
};

// Chooses the layout of every value; see layouts.cpp.
void choose_layouts(Graph& graph, const Context& context);

// Throws Error: `fusion`, which this backend does not support, has made the node.
[[noreturn]] void refuse_fusion(const Operands& operands, std::string_view fusion);

// One overload an op, defined in kernels/*/*.cpu.cpp. An op without one does not compile, and the
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

}  // namespace warpstep::cpu
