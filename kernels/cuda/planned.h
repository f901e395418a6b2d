// Kernels that execute a plan of cuDNN.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

// The library's plan for the node's graph. Throws DeviceError with the reason and `remedy` where
// there is none.
inline std::shared_ptr<dnn::Plan> require_plan(const Operands& operands, const dnn::Graph& graph,
                                               std::string_view remedy) {
  dnn::Planned planned = operands.context.dnn->plan(graph);
  if (!planned.plan)
    fail<DeviceError>("cuda: {} has no engine for {} ({}): {}; {}", operands.context.dnn->version(),
                      operands.node.title(), text(operands.node.op), planned.why_not, remedy);
  return std::move(planned.plan);
}

using Uids = std::vector<std::int64_t>;

// A kernel that executes the plan, with a node's first inputs and outputs bound to these uids, at
// most 13 in all.
inline std::unique_ptr<Kernel> planned_kernel(std::shared_ptr<dnn::Plan> plan, Uids in, Uids out) {
  const std::string implementation = plan->implementation();
  const std::size_t workspace = plan->workspace_bytes();
  return launch_kernel(
      implementation,
      [plan = std::move(plan), in = std::move(in), out = std::move(out)](const Buffers& b,
                                                                         CudaStream& s) {
        std::array<dnn::Binding, 13> bindings;
        std::size_t bound = 0;
        for (std::size_t i = 0; i < in.size(); ++i) bindings[bound++] = {in[i], b.in[i]};
        for (std::size_t i = 0; i < out.size(); ++i) bindings[bound++] = {out[i], b.out[i]};
        plan->execute(s, std::span(bindings).first(bound), b.workspace);
      },
      workspace);
}

}  // namespace warpstep::cuda
