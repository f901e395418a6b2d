// Binds the end and the beginning of a step to their launchers.
#include "kernels/update/update.cuda.h"

#include "engine/run/store.h"
#include "kernels/cuda/cuda.h"
#include "kernels/update/gradients.h"

namespace warpstep::cuda {
namespace {

// A kernel over `count` elements, padding included. The inputs are those of Update; UpdateAll's
// parameters are contiguous in each section of the store, so it binds the first parameter's.
std::unique_ptr<Kernel> bind_update(const Update& op, const Operands& operands,
                                    std::int64_t count) {
  return launch_kernel(std::string(name(op.optimizer.kind)),
                       [op, count, rule = update_rule(op.optimizer), dtype = operands.dtype_in(1),
                        copies = operands.dtype_in(op.copy ? static_cast<int>(op.operands()) - 1
                                                           : 1)](const Buffers& b, CudaStream& s) {
                         const int moments = op.optimizer.moments();
                         update(rule,
                                {.parameters = as<float>(b.in[0]),
                                 .gradients = b.in[1],
                                 .state = as<StepState>(b.in[2]),
                                 .first = moments > 0 ? as<float>(b.in[3]) : nullptr,
                                 .second = moments > 1 ? as<float>(b.in[4]) : nullptr,
                                 .copy = op.copy ? b.in[op.operands() - 1] : nullptr},
                                count, dtype, copies, s.handle());
                       });
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return launch_kernel("clock", [op](const Buffers& b, CudaStream& s) {
    clock(op.schedule, op.beta1, op.beta2, op.scaling, op.accumulate, op.replica,
          as<StepState>(b.in[0]), s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  return bind_update(op, operands, operands.stored_in(0).count());
}

// The padding between parameters is zero, as are its gradient and moments, which keeps it zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  return bind_update({op.optimizer, op.copy}, operands,
                     section_elements(operands.graph, operands.node));
}

std::unique_ptr<Kernel> bind(const Report&, const Operands&) {
  return launch_kernel("report", [](const Buffers& b, CudaStream& s) {
    const auto* correct = b.in.size() == 4 ? as<std::int32_t>(b.in[1]) : nullptr;
    report(as<float>(b.in[0]), correct, as<StepState>(b.in[b.in.size() - 2]),
           as<StepReport>(b.in.back()), s.handle());
  });
}

// The passes around the update. They run over whole sections of the store, padding included: it is
// zero in all of them and stays zero.

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

// A listing binds it without a job.
std::unique_ptr<Kernel> bind(const AllReduce& op, const Operands& operands) {
  const std::shared_ptr<Nccl>& nccl = operands.context.nccl;
  const DType dtype = operands.dtype_in(0);
  return launch_kernel(nccl ? nccl->version() : "NCCL",
                       [op, nccl, dtype, runs = section_runs(operands.graph, operands.node)](
                           const Buffers& b, CudaStream& s) {
                         if (const int ranks = nccl ? nccl->ranks() : 1; ranks != op.ranks)
                           fail<Error>("the step was compiled for {} ranks, and the job has {}",
                                       op.ranks, ranks);
                         if (!nccl) return;
                         std::vector<Nccl::Piece> pieces;
                         for (const SectionRun& run : runs)
                           pieces.push_back({b.in[run.input], run.elements});
                         nccl->mean(pieces, dtype, s.handle());
                       });
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
