// Binds the end and the beginning of a step to their launchers.
#include "kernels/update/update.cuda.h"

#include <algorithm>

#include "engine/run/store.h"
#include "kernels/cuda/cuda.h"
#include "kernels/update/gradients.h"

namespace warpstep::cuda {
namespace {

std::byte* element_at(void* address, std::int64_t element, DType dtype) {
  return static_cast<std::byte*>(address) + idx(element) * size_bytes(dtype);
}

// Whether a check has just read the gradients upwards: the L2 cache has the last of them, so that
// the update begins there. Without a check it has those that the backward half wrote last, the
// first ones.
bool is_after_check(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) {
    return std::holds_alternative<CheckGradients>(node.op);
  });
}

// A kernel over `count` elements, padding included. The inputs are those of Update; UpdateAll's
// parameters are contiguous in each section of the store, so it binds the first parameter's. Where
// ranks share the moments out, over this rank's share of them.
std::unique_ptr<Kernel> bind_update(const Update& op, const Operands& operands,
                                    std::int64_t count) {
  const SectionRun run = update_run(operands.graph, operands.node, count);
  return launch_kernel(
      std::string(name(op.optimizer.kind)),
      [op, place = run.begin, part = own_part(operands.graph, run),
       stored = op.optimizer.moment_dtype, rule = update_rule(op.optimizer),
       downwards = is_after_check(operands.graph), dtype = operands.dtype_in(1),
       copies = operands.dtype_in(op.copy ? static_cast<int>(op.operands()) - 1 : 1)](
          const Buffers& b, CudaStream& s) {
        const int moments = op.optimizer.moments();
        const auto at = [&](std::size_t i, DType of) {
          return element_at(b.in[i], part.begin, of);
        };
        update(rule,
               {.parameters = as<float>(b.in[0]) + part.begin,
                .gradients = at(1, dtype),
                .state = as<StepState>(b.in[2]),
                .first = moments > 0 ? element_at(b.in[3], part.moments, stored) : nullptr,
                .second = moments > 1 ? element_at(b.in[4], part.moments, stored) : nullptr,
                .moments = stored,
                .place = place + part.begin,
                .copy = op.copy ? at(op.operands() - 1, copies) : nullptr,
                .downwards = downwards},
               part.elements, dtype, copies, s.handle());
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

namespace {

GradientBuffers gradient_buffers(const Buffers& b, void* gradients, const Ticket& ticket) {
  return {.gradients = gradients,
          .state = as<StepState>(b.in[0]),
          .workspace = b.workspace,
          .ticket = ticket.word()};
}

// The shares of a run, each with the rank that updates it.
void add_shares(std::vector<Nccl::Piece>& pieces, const SectionRun& run, void* data, DType dtype) {
  std::size_t begin = 0;
  for (std::size_t owner = 0; owner < run.ends.size(); begin = run.ends[owner++])
    if (const std::size_t end = run.ends[owner]; end > begin)
      pieces.push_back({static_cast<std::byte*>(data) + begin * size_bytes(dtype),
                        static_cast<std::int64_t>(end - begin), dtype, static_cast<int>(owner)});
}

}  // namespace

std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  const std::int64_t count = section_elements(operands.graph);
  const DType dtype = operands.dtype_in(1);
  if (operands.graph.shards.ranks == 1)
    return launch_kernel(
        "check_gradients",
        [op, count, dtype, ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
          check_gradients(gradient_buffers(b, b.in[1], ticket), count, dtype, op.clip_norm,
                          s.handle());
        },
        check_gradients_workspace(count, dtype));
  const int ranks = static_cast<int>(operands.graph.shards.ranks);
  const OwnPart part = own_part(operands.graph, {0, 0, count, {}});
  const std::size_t partial = check_gradients_workspace(part.elements, dtype);
  return launch_kernel(
      "check_gradients + NCCL",
      [op, part, dtype, ranks, partial, nccl = operands.context.nccl,
       ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        require_ranks(ranks, nccl);
        auto* squares = reinterpret_cast<double*>(static_cast<std::byte*>(b.workspace) + partial);
        void* own = element_at(b.in[1], part.begin, dtype);
        sum_squares(gradient_buffers(b, own, ticket), part.elements, dtype,
                    squares + nccl->world().rank, s.handle());
        nccl->all_gather(squares, sizeof(double), s.handle());
        settle_squares(squares, ranks, op.clip_norm, as<StepState>(b.in[0]), s.handle());
      },
      partial + idx(ranks) * sizeof(double));
}

std::unique_ptr<Kernel> bind(const AllReduce& op, const Operands& operands) {
  const std::shared_ptr<Nccl>& nccl = operands.context.nccl;
  const DType dtype = operands.dtype_in(0);
  return launch_kernel(nccl ? nccl->version() : "NCCL",
                       [op, nccl, dtype, runs = section_runs(operands.graph, operands.node)](
                           const Buffers& b, CudaStream& s) {
                         require_ranks(op.ranks, nccl);
                         if (!nccl) return;
                         std::vector<Nccl::Piece> pieces;
                         for (const SectionRun& run : runs)
                           if (op.to_owners)
                             add_shares(pieces, run, b.in[run.input], dtype);
                           else
                             pieces.push_back({b.in[run.input], run.elements, dtype});
                         nccl->mean(pieces, op.to_owners, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const AllGather& op, const Operands& operands) {
  const std::shared_ptr<Nccl>& nccl = operands.context.nccl;
  std::vector<std::pair<SectionRun, DType>> runs;
  for (const SectionRun& run : section_runs(operands.graph, operands.node))
    runs.emplace_back(run, operands.dtype_in(static_cast<int>(run.input)));
  return launch_kernel(nccl ? nccl->version() : "NCCL",
                       [op, nccl, runs](const Buffers& b, CudaStream& s) {
                         require_ranks(op.ranks, nccl);
                         if (!nccl) return;
                         std::vector<Nccl::Piece> pieces;
                         for (const auto& [run, dtype] : runs)
                           add_shares(pieces, run, b.in[run.input], dtype);
                         nccl->share(pieces, s.handle());
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
  const LarsRule rule{op.trust, op.weight_decay, op.epsilon};
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
