// Bound by arithmetic: ten rounds of Philox for four numbers, and for normal ones two logarithms
// and two sines and cosines, which with the C library's functions take ten times as long.
#include "engine/run/initial_values.h"

#include <algorithm>
#include <numbers>

#include "engine/core/random.h"

namespace warpstep {
namespace {

constexpr int together = 16;  // draws in vector registers
constexpr double ln2 = std::numbers::ln2, pi = std::numbers::pi;

#pragma GCC push_options
#pragma GCC optimize("no-math-errno")  // a square root is one instruction

namespace initial {
#define WARPSTEP_SOURCE "engine/run/initial_values.inc"
#include "engine/core/each_set.inc"
}  // namespace initial

#pragma GCC pop_options

}  // namespace

std::vector<InitialValuesVariant> initial_values_variants() {
  std::vector<InitialValuesVariant> variants;
  const CpuIsa isa = best_cpu_isa();
  if (isa >= CpuIsa::avx512) variants.push_back({CpuIsa::avx512, initial::avx512::run});
  if (isa >= CpuIsa::avx2) variants.push_back({CpuIsa::avx2, initial::avx2::run});
  variants.push_back({CpuIsa::base, initial::plain::run});
  return variants;
}

void initial_values(const InitialDraws& of, std::int64_t first, std::int64_t count, float* to) {
  if (of.initial.kind == Initial::Kind::constant) {
    std::fill_n(to, count, static_cast<float>(of.initial.value));
    return;
  }
  static const auto chosen = [] {
    const std::vector<InitialValuesVariant> variants = initial_values_variants();
    return std::ranges::find_if(variants, [](const auto& v) { return v.isa <= cpu_isa(); })->run;
  }();
  chosen(of, first, count, to);
}

}  // namespace warpstep
