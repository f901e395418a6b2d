#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands&) {
  fail<Error>("cpu: {} is not there yet", op.name);
}
std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands&) {
  fail<Error>("cpu: {} is not there yet", op.name);
}
std::unique_ptr<Kernel> bind(const Average& op, const Operands&) {
  fail<Error>("cpu: {} is not there yet", op.name);
}

}  // namespace warpstep::cpu
