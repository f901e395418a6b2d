#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands&) {
  fail<Error>("cuda: {} is not there yet", op.name);
}
std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands&) {
  fail<Error>("cuda: {} is not there yet", op.name);
}

}  // namespace warpstep::cuda
