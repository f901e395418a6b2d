#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Embed& op, const Operands&) {
  fail<DeviceError>("{} has no kernel", op.name);
}
std::unique_ptr<Kernel> bind(const EmbedGrad& op, const Operands&) {
  fail<DeviceError>("{} has no kernel", op.name);
}

}  // namespace warpstep::cpu
