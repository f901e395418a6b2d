// The arithmetic peak of CPUs: multiply-adds from registers, in the instruction set that loops use
// (cpu_isa.h). No kernel reaches more.
#pragma once

#include <cstdint>
#include <span>

namespace warpstep {

struct MultiplyAdds {
  float (*run)(float one, std::int64_t rounds);
  double flops;  // per round; a multiply-add counts as two
};
// The loop of cpu_isa() for f32; of bf16_isa(), which must not be none, for bf16.
MultiplyAdds multiply_adds(bool bf16);

// FLOP/s of so many threads at once, thread i on cpus[i] where that exists: the best of seven runs
// of 2 ms, about 25 ms in all, in the threads' own CPU time, so that other programs hardly change
// it. 0 if the threads cannot be started.
double measure_peak_flops(int threads, bool bf16, std::span<const int> cpus = {});

}  // namespace warpstep
