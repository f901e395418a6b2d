// Which vector instructions our loops use: the best that the CPU has, or fewer if the environment
// variable WARPSTEP_CPU_ISA limits them (avx512, avx2 or sse41), so that one machine can run the
// code path of another.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace warpstep {

enum class CpuIsa : std::uint8_t { sse41, avx2, avx512 };  // each includes those before it
std::string_view name(CpuIsa isa);                         // "SSE4.1", "AVX2", "AVX-512"

// The best of this CPU: AVX2 with FMA; AVX-512 as on Skylake's servers (F, BW, DQ, VL).
CpuIsa best_cpu_isa();
// The limit in WARPSTEP_CPU_ISA, read once; nothing if it is not set. Throws UsageError for an
// invalid value.
std::optional<CpuIsa> cpu_isa_limit();
// The set that loops use. An invalid WARPSTEP_CPU_ISA is ignored here; opening a backend reports
// it.
CpuIsa cpu_isa();

}  // namespace warpstep
