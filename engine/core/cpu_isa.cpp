#include "engine/core/cpu_isa.h"

#include <fmt/format.h>
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
  for (const CpuIsaLimit& known : cpu_architecture().limits)
    if (given == known.word) return {known.isa, known.bf16};
  return {.valid = false};
}

const Limit& limit() {
  static const Limit read = read_limit();
  return read;
}

// "amx, avx512 or avx2".
std::string words_of_limits() {
  std::string words;
  const std::span<const CpuIsaLimit> limits = cpu_architecture().limits;
  for (std::size_t i = 0; i < limits.size(); ++i)
    words += fmt::format("{}{}",
                         i == 0                  ? ""
                         : i + 1 < limits.size() ? ", "
                                                 : " or ",
                         limits[i].word);
  return words;
}

std::string text_of(CpuIsa isa, Bf16Isa bf16) {
  return std::string(name(isa)) + (bf16 == Bf16Isa::none ? "" : " with " + std::string(name(bf16)));
}

}  // namespace

std::string_view name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::base: return cpu_architecture().base;
    case CpuIsa::avx2: return "AVX2";
    case CpuIsa::avx512: return "AVX-512";
  }
  return "unknown";
}

std::string_view name(Bf16Isa isa) {
  switch (isa) {
    case Bf16Isa::none: return "none";
    case Bf16Isa::avx512_bf16: return "AVX512_BF16";
    case Bf16Isa::amx: return "AMX";
  }
  return "unknown";
}

std::optional<CpuIsa> cpu_isa_limit() {
  if (!limit().valid)
    fail<UsageError>("{}={}: must be {}; unset it to use the best that the CPU has", variable,
                     std::getenv(variable), words_of_limits());
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
  std::string used = text_of(cpu_isa(), bf16_isa());
  if (!limit().isa) return used;
  const std::string best = text_of(best_cpu_isa(), best_bf16_isa());
  return used == best ? used : used + " by WARPSTEP_CPU_ISA, of " + best;
}

}  // namespace warpstep
