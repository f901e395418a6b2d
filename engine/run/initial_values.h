// The values that parameters begin with: a function of the seed, the parameter and the element, on
// every CPU and in any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/graph/graph.h"

namespace warpstep {

struct InitialDraws {
  Initial initial;
  std::uint64_t seed = 0;
  std::uint32_t parameter = 0;  // its number in the graph
};

// Elements 4 * first to 4 * first + count, in PyTorch's order: four of each draw(). A normal
// distribution is Box and Muller's, of two words for two numbers.
void initial_values(const InitialDraws& of, std::int64_t first, std::int64_t count, float* to);

// The variants of initial_values() that this machine can run, best first. All give the same bits.
struct InitialValuesVariant {
  CpuIsa isa;
  decltype(&initial_values) run;
};
std::vector<InitialValuesVariant> initial_values_variants();

}  // namespace warpstep
