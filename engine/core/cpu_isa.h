// Which vector instructions our loops use, and which matrix instructions products of bf16: the best
// that the CPU has, or fewer if the environment variable WARPSTEP_CPU_ISA limits them (amx,
// avx512-bf16, avx512, avx2 or sse41), so that one machine can run the code path of another. On
// 64-bit Arm there is one set, NEON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace warpstep {

// Each includes those before it. `base` is what every CPU of the architecture has.
enum class CpuIsa : std::uint8_t { base, avx2, avx512 };
std::string_view name(CpuIsa isa);  // "SSE4.1" or "NEON", "AVX2", "AVX-512"

// The best of this CPU: AVX2 with FMA; AVX-512 as on Skylake's servers (F, BW, DQ, VL).
CpuIsa best_cpu_isa();
// What multiplies matrices of bf16; each includes those before it and CpuIsa::avx512.
enum class Bf16Isa : std::uint8_t { none, avx512_bf16, amx };
std::string_view name(Bf16Isa isa);  // "none", "AVX512_BF16", "AMX"
// The best of this CPU. AMX also needs the kernel's permission, for the whole process, which the
// first call asks for.
Bf16Isa best_bf16_isa();

// The limit in WARPSTEP_CPU_ISA, read once; nothing if it is not set. Throws UsageError for an
// invalid value.
std::optional<CpuIsa> cpu_isa_limit();
// The set that loops use. An invalid WARPSTEP_CPU_ISA is ignored here; opening a backend reports
// it.
CpuIsa cpu_isa();
Bf16Isa bf16_isa();  // likewise, of products of bf16

// What differs between architectures: cpu_x86_64.cpp, cpu_aarch64.cpp.
struct CpuIsaLimit {
  std::string_view word;  // in WARPSTEP_CPU_ISA
  CpuIsa isa;
  Bf16Isa bf16;
};
struct CpuArchitecture {
  std::string_view base;  // the name of CpuIsa::base
  std::span<const CpuIsaLimit> limits;
};
CpuArchitecture cpu_architecture();

// "AVX-512 with AMX", or with a limit "AVX2 by WARPSTEP_CPU_ISA, of AVX-512 with AMX".
std::string cpu_isa_text();

}  // namespace warpstep
