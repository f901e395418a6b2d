#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const LayerNorm& op, const Operands&) {
  fail<DeviceError>("{} has no kernel", op.name);
}
std::unique_ptr<Kernel> bind(const LayerNormGrad& op, const Operands&) {
  fail<DeviceError>("{} has no kernel", op.name);
}

}  // namespace warpstep::ref
