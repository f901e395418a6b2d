// The CPU backend: our own vector loops on one OpenMP team. Every value is stored plain: images as
// rows of channels (nhwc), matrices row by row.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::cpu {

struct Context {
  bool exact_math = false;
  std::shared_ptr<Communicator> communicator;  // null outside of a data-parallel job
};

struct Operands : warpstep::Operands {
  const Context& context;
};

// Throws Error: `fusion`, which this backend does not support, has made the node.
[[noreturn]] void refuse_fusion(const Operands& operands, std::string_view fusion);

// Whether the convolution of images x is computed with its pool; see Backend::computes().
bool computes_pooled(const Conv& op, const Type& x, const Context& context);

// bind() of every op, defined in kernels/*/*.cpu.cpp.
WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND)

}  // namespace warpstep::cpu
