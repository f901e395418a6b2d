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

// bind() of every op, defined in kernels/*/*.cpu.cpp.
WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND)

}  // namespace warpstep::cpu
