// What stands beside the update. Sections of the store are flat, padding included: it is zero in
// all of them and stays so.
#include "engine/store.h"
#include "kernels/cuda/cuda.h"
#include "kernels/update/gradients.h"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {
std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  const std::int64_t count = section_elements(operands.graph);
  const DType dtype = operands.dtype_in(1);
  return launch_kernel(
      "check_gradients",
      [op, count, dtype, ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        check_gradients({.gradients = b.in[1],
                         .state = as<StepState>(b.in[0]),
                         .workspace = b.workspace,
                         .ticket = ticket.word()},
                        count, dtype, op.clip_norm, s.handle());
      },
      check_gradients_workspace(count, dtype));
}

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands& operands) {
  const auto share = static_cast<float>(1.0 / static_cast<double>(op.steps));
  return launch_kernel(
      "accumulate", [share, count = section_elements(operands.graph), dtype = operands.dtype_in(1)](
                        const Buffers& b, CudaStream& s) {
        accumulate(b.in[1], as<float>(b.in[2]), count, dtype, share, as<StepState>(b.in[0]),
                   s.handle());
      });
}

std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands& operands) {
  const LarsRule rule{static_cast<float>(op.trust), static_cast<float>(op.weight_decay),
                      static_cast<float>(op.epsilon)};
  const std::vector<std::size_t> scaled = lars_inputs(operands.graph, operands.node);
  std::vector<std::int64_t> counts(operands.node.in.size());
  for (const std::size_t p : scaled) counts[p] = operands.stored_in(static_cast<int>(p)).count();
  return launch_kernel(
      "lars",
      [rule, scaled, counts, dtype = operands.dtype_in(2)](const Buffers& b, CudaStream& s) {
        for (const std::size_t p : scaled)
          lars(rule, as<float>(b.in[p]), b.in[p + 1], counts[p], dtype, as<StepState>(b.in[0]),
               b.workspace, s.handle());
      },
      lars_workspace);
}

std::unique_ptr<Kernel> bind(const Average& op, const Operands& operands) {
  return launch_kernel(
      "average", [op, count = section_elements(operands.graph)](const Buffers& b, CudaStream& s) {
        average(as<float>(b.in[1]), as<float>(b.in[2]), count, op.decay, as<StepState>(b.in[0]),
                s.handle());
      });
}

}  // namespace warpstep::cuda
