// Dropout on the CPU: draws and drops in chunks. Figures: bench/RECORDS.md.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropping.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Dropout& op, const Operands& operands) {
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    const std::int64_t count = operands.out_shape().count();
    return host_kernel("philox loops",
                       [dropping = Dropping(op.rate, op.layer, count), count](const Buffers& b) {
                         constexpr std::int64_t chunk = 2048;  // elements per task
                         const StepState state = *as<StepState>(b.in[1]);
#pragma omp parallel for schedule(static) if (count > 4 * chunk)
                         for (std::int64_t begin = 0; begin < count; begin += chunk)
                           dropping.apply(state, as<T>(b.in[0]), as<T>(b.out[0]), begin,
                                          std::min(count, begin + chunk));
                       });
  });
}

}  // namespace warpstep::cpu
