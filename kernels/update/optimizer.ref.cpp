#include "engine/core/error.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands&) {
  fail<Error>("ref: {} is not there yet", op.name);
}
std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands&) {
  fail<Error>("ref: {} is not there yet", op.name);
}
std::unique_ptr<Kernel> bind(const Average& op, const Operands&) {
  fail<Error>("ref: {} is not there yet", op.name);
}

}  // namespace warpstep::ref
