#include "engine/core/cpu_isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/core/error.h"

namespace warpstep {
namespace {

constexpr const char* variable = "WARPSTEP_CPU_ISA";

struct Limit {
  std::optional<CpuIsa> isa;
  Bf16Isa bf16 = Bf16Isa::amx;
  bool valid = true;
};

Limit read_limit() {
  const char* text = std::getenv(variable);
  const std::string_view given = text ? text : "";
  if (given.empty()) return {};
  if (given == "amx") return {CpuIsa::avx512};
  if (given == "avx512-bf16") return {CpuIsa::avx512, Bf16Isa::avx512_bf16};
  if (given == "avx512") return {CpuIsa::avx512, Bf16Isa::none};
  if (given == "avx2") return {CpuIsa::avx2, Bf16Isa::none};
  if (given == "sse41") return {CpuIsa::sse41, Bf16Isa::none};
  return {.valid = false};
}

const Limit& limit() {
  static const Limit read = read_limit();
  return read;
}

// Tiles hold 8 KiB of state per thread, which the kernel saves only for processes that have asked.
bool may_use_tiles() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

std::string text_of(CpuIsa isa, Bf16Isa bf16) {
  return std::string(name(isa)) + (bf16 == Bf16Isa::none ? "" : " with " + std::string(name(bf16)));
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

std::string_view name(Bf16Isa isa) {
  switch (isa) {
    case Bf16Isa::none: return "none";
    case Bf16Isa::avx512_bf16: return "AVX512_BF16";
    case Bf16Isa::amx: return "AMX";
  }
  return "unknown";
}

Bf16Isa best_bf16_isa() {
  static const Bf16Isa best = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (best_cpu_isa() < CpuIsa::avx512 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0)
      return Bf16Isa::none;
    if ((a & 1U << 5) == 0) return Bf16Isa::none;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;
    const bool has_amx = (d & amx_bf16) != 0 && (d & amx_tile) != 0;
    return has_amx && may_use_tiles() ? Bf16Isa::amx : Bf16Isa::avx512_bf16;
  }();
  return best;
}

std::optional<CpuIsa> cpu_isa_limit() {
  if (!limit().valid)
    fail<UsageError>(
        "{}={}: must be amx, avx512-bf16, avx512, avx2 or sse41; unset it to use the best that the "
        "CPU has",
        variable, std::getenv(variable));
  return limit().isa;
}

CpuIsa cpu_isa() {
  static const CpuIsa used = std::min(best_cpu_isa(), limit().isa.value_or(CpuIsa::avx512));
  return used;
}

Bf16Isa bf16_isa() {
  static const Bf16Isa used = std::min(best_bf16_isa(), limit().bf16);
  return used;
}

std::string cpu_isa_text() {
  const std::string used = text_of(cpu_isa(), bf16_isa());
  if (!limit().isa) return used;
  const std::string best = text_of(best_cpu_isa(), best_bf16_isa());
  return used == best ? used : used + " by WARPSTEP_CPU_ISA, of " + best;
}

}  // namespace warpstep
