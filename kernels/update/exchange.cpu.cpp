// What the ranks of a data-parallel job exchange on the CPU: gradients and updated parameters.
#include "engine/run/store.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const AllReduce& op, const Operands& operands) {
  if (op.ranks > 1 && operands.in(0).type.dtype != DType::f32)
    fail<Error>("gradients are summed over ranks in f32, not in {}",
                name(operands.in(0).type.dtype));
  const auto share = static_cast<float>(1.0 / static_cast<double>(op.ranks));
  return host_kernel("ordered exchange",
                     [op, share, communicator = operands.context.communicator,
                      runs = section_runs(operands.graph, operands.node)](const Buffers& b) {
                       require_ranks(op.ranks, communicator);
                       if (op.ranks == 1) return;
                       for (const SectionRun& run : runs) {
                         const std::span values(as<float>(b.in[run.input]), idx(run.elements));
                         if (op.to_owners)
                           communicator->sum_own(values, run.ends, share);
                         else
                           communicator->sum(values, share);
                       }
                     });
}

std::unique_ptr<Kernel> bind(const AllGather& op, const Operands& operands) {
  std::vector<SectionRun> runs = section_runs(operands.graph, operands.node);
  for (SectionRun& run : runs) {  // in bytes
    const std::size_t bytes = size_bytes(operands.in(static_cast<int>(run.input)).type.dtype);
    run.elements *= static_cast<std::int64_t>(bytes);
    for (std::size_t& end : run.ends) end *= bytes;
  }
  return host_kernel("exchange", [op, communicator = operands.context.communicator,
                                  runs = std::move(runs)](const Buffers& b) {
    require_ranks(op.ranks, communicator);
    if (op.ranks == 1) return;
    for (const SectionRun& run : runs)
      communicator->all_gather(std::span(as<std::byte>(b.in[run.input]), idx(run.elements)),
                               run.ends);
  });
}

}  // namespace warpstep::cpu
