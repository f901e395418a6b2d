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

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
namespace initial_avx512 {
#include "engine/run/initial_values.inc"
}  // namespace initial_avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2")
namespace initial_avx2 {
#include "engine/run/initial_values.inc"
}  // namespace initial_avx2
#pragma GCC pop_options

namespace initial_plain {
#include "engine/run/initial_values.inc"
}  // namespace initial_plain

#pragma GCC pop_options

}  // namespace

std::vector<InitialValuesVariant> initial_values_variants() {
  std::vector<InitialValuesVariant> variants;
  const CpuIsa isa = best_cpu_isa();
  if (isa >= CpuIsa::avx512) variants.push_back({CpuIsa::avx512, initial_avx512::run});
  if (isa >= CpuIsa::avx2) variants.push_back({CpuIsa::avx2, initial_avx2::run});
  variants.push_back({CpuIsa::sse41, initial_plain::run});
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
