// Which vector instructions of the CPU our loops use: the best that the CPU has, or fewer where the
// environment variable WARPSTEP_CPU_ISA says so (avx512, avx2 or sse41), so that one machine can
// run what another one will.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace warpstep {

enum class CpuIsa : std::uint8_t { sse41, avx2, avx512 };  // each has those before it
std::string_view name(CpuIsa isa);                         // "SSE4.1", "AVX2", "AVX-512"

CpuIsa
best_cpu_isa();  // of this CPU: AVX2 with FMA; AVX-512 as on Skylake's servers (F, BW, DQ, VL)
// What WARPSTEP_CPU_ISA allows, read once; none where it is not set. Throws UsageError for any
// other value.
std::optional<CpuIsa> cpu_isa_limit();
// What loops use. A wrong WARPSTEP_CPU_ISA limits nothing here: it is refused where a backend is
// opened.
CpuIsa cpu_isa();

}  // namespace warpstep
