#include "engine/core/cpu_isa.h"

#include <algorithm>
#include <cstdlib>

#include "engine/core/error.h"

namespace warpstep {
namespace {

constexpr const char* variable = "WARPSTEP_CPU_ISA";

struct Limit {
  std::optional<CpuIsa> isa;
  bool valid = true;
};

Limit read_limit() {
  const char* text = std::getenv(variable);
  const std::string_view given = text ? text : "";
  if (given.empty()) return {};
  if (given == "avx512") return {CpuIsa::avx512};
  if (given == "avx2") return {CpuIsa::avx2};
  if (given == "sse41") return {CpuIsa::sse41};
  return {std::nullopt, false};
}

const Limit& limit() {
  static const Limit read = read_limit();
  return read;
}

}  // namespace

std::string_view name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::sse41: return "SSE4.1";
    case CpuIsa::avx2: return "AVX2";
    case CpuIsa::avx512: return "AVX-512";
  }
  return "unknown";
}

CpuIsa best_cpu_isa() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return CpuIsa::avx512;
  return avx2 ? CpuIsa::avx2 : CpuIsa::sse41;
}

std::optional<CpuIsa> cpu_isa_limit() {
  if (!limit().valid)
    fail<UsageError>(
        "{}={}: must be avx512, avx2 or sse41; unset it to use the best that the CPU has", variable,
        std::getenv(variable));
  return limit().isa;
}

CpuIsa cpu_isa() {
  static const CpuIsa used = std::min(best_cpu_isa(), limit().isa.value_or(CpuIsa::avx512));
  return used;
}

}  // namespace warpstep
