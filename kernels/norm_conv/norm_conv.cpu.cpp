// The CPU backend has no kernels for these ops and refuses the fusions that make them.
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
