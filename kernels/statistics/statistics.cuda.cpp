// Binds the calls that measure a step to their launchers.
#include "kernels/statistics/statistics.cuda.h"

#include <cstddef>

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

// The kernels write a row as its doubles, in the order of the fields.
static_assert(sizeof(BlockSums) == 7 * sizeof(double) &&
              offsetof(BlockSums, update_squares) == 2 * sizeof(double) &&
              offsetof(BlockSums, nonzero) == 6 * sizeof(double));

std::unique_ptr<Kernel> bind(const ActivationStatistics& op, const Operands& operands) {
  return launch_kernel(
      "activation_statistics",
      [op, count = operands.stored_in(2).count(), dtype = operands.dtype_in(2),
       ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        activation_statistics(b.in[2], count, dtype,
                              {.ring = as<double>(b.in[1]),
                               .state = as<StepState>(b.in[0]),
                               .block = op.block,
                               .blocks = op.blocks,
                               .workspace = b.workspace,
                               .ticket = ticket.word()},
                              s.handle());
      },
      statistics_workspace);
}

std::unique_ptr<Kernel> bind(const UpdateStatistics& op, const Operands& operands) {
  return launch_kernel(
      "update_statistics",
      [op, rule = update_rule(op.optimizer), count = operands.stored_in(2).count(),
       dtype = operands.dtype_in(3),
       ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        const int moments = op.optimizer.moments();
        update_statistics(rule,
                          {.parameters = as<float>(b.in[2]),
                           .gradients = b.in[3],
                           .state = as<StepState>(b.in[0]),
                           .first = moments > 0 ? b.in[4] : nullptr,
                           .second = moments > 1 ? b.in[5] : nullptr,
                           .moments = op.optimizer.moment_dtype},
                          count, dtype, op.first,
                          {.ring = as<double>(b.in[1]),
                           .state = as<StepState>(b.in[0]),
                           .block = op.block,
                           .blocks = op.blocks,
                           .workspace = b.workspace,
                           .ticket = ticket.word()},
                          s.handle());
      },
      statistics_workspace);
}

}  // namespace warpstep::cuda
