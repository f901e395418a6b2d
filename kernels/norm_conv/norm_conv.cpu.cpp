// The CPU backend has no kernels for these ops and refuses the fusions that make them. oneDNN has
// no primitive that computes a convolution and the statistics of its output at once, and little
// would be gained: a CPU's caches still hold what the convolution has just written.
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const NormConv&, const Operands& operands) {
  refuse_fusion(operands, fusion::conv_statistics);
}

std::unique_ptr<Kernel> bind(const NormFinalize&, const Operands& operands) {
  refuse_fusion(operands, fusion::conv_statistics);
}

std::unique_ptr<Kernel> bind(const NormApply&, const Operands& operands) {
  refuse_fusion(operands, fusion::conv_statistics);
}

std::unique_ptr<Kernel> bind(const NormConvDataGrad&, const Operands& operands) {
  refuse_fusion(operands, fusion::dgrad_norm_dgrad);
}

std::unique_ptr<Kernel> bind(const NormGradApply&, const Operands& operands) {
  refuse_fusion(operands, fusion::dgrad_norm_dgrad);
}

std::unique_ptr<Kernel> bind(const NormConvWeightGrad&, const Operands& operands) {
  refuse_fusion(operands, fusion::norm_conv);
}

}  // namespace warpstep::cpu
