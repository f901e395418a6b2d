// The CPU backend has no kernels for these ops and refuses the fusion that makes them.
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const NormPool&, const Operands& operands) {
  refuse_fusion(operands, fusion::norm_pool);
}

std::unique_ptr<Kernel> bind(const NormPoolGrad&, const Operands& operands) {
  refuse_fusion(operands, fusion::norm_pool);
}

}  // namespace warpstep::cpu
