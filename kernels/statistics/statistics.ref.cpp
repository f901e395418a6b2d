// The calls that measure a step, in double.
#include <algorithm>
#include <cmath>

#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const ActivationStatistics& op, const Operands& operands) {
  return host_kernel("loops", [op, count = operands.in_shape(2).count()](const Buffers& b) {
    double sum = 0, squares = 0, largest = 0, nonzero = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double x = as<double>(b.in[2])[i];
      sum += x;
      squares += x * x;
      largest = std::max(largest, std::abs(x));
      nonzero += x != 0 ? 1 : 0;
    }
    BlockSums& row =
        block_sums(as<BlockSums>(b.in[1]), *as<StepState>(b.in[0]), op.blocks, op.block);
    row.sum = sum;
    row.squares = squares;
    row.largest = largest;
    row.nonzero = nonzero;
  });
}

}  // namespace warpstep::ref
