// The building blocks of every backend's kernels.
#pragma once

#include <memory>
#include <utility>

#include "engine/run/backend.h"

namespace warpstep {

// The types of a node's inputs and outputs, as bind() sees them.
struct Operands {
  const Graph& graph;
  const Node& node;

  const Value& in(int i) const { return graph.value(node.in[idx(i)]); }
  const Value& out(int i = 0) const { return graph.value(node.out[idx(i)]); }
  const Shape& in_shape(int i) const { return in(i).type.shape; }
  const Shape& out_shape(int i = 0) const { return out(i).type.shape; }
};

// In a backend's namespace, WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND) declares what binds each op to
// its kernel. An op without a definition does not link, and the message names it: "undefined
// reference to `warpstep::cpu::bind(warpstep::Conv const&, ...)'".
#define WARPSTEP_DECLARE_BIND(Op) std::unique_ptr<Kernel> bind(const Op&, const Operands&);

// `bind` of the node's op; views have no kernel.
template <class Bind>
std::unique_ptr<Kernel> bind_node(const Node& node, Bind bind) {
  return std::visit(
      [&]<class Op>(const Op& op) -> std::unique_ptr<Kernel> {
        if constexpr (Op::traits.kind == OpKind::view)
          fail<Error>("a view has no kernel");
        else
          return bind(op);
      },
      node.op);
}

// A kernel that runs immediately on the host, from a callable (const Buffers&).
template <class Run>
class HostKernel final : public Kernel {
 public:
  HostKernel(Run run, std::string implementation, std::size_t workspace_bytes, double flops)
      : run_(std::move(run)),
        implementation_(std::move(implementation)),
        workspace_bytes_(workspace_bytes),
        flops_(flops) {}
  void enqueue(Stream&, const Buffers& buffers) const override { run_(buffers); }
  std::string implementation() const override { return implementation_; }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  double flops() const override { return flops_; }

 private:
  Run run_;
  std::string implementation_;
  std::size_t workspace_bytes_;
  double flops_;
};

template <class Run>
std::unique_ptr<Kernel> host_kernel(std::string implementation, Run run,
                                    std::size_t workspace_bytes = 0, double flops = 0) {
  return std::make_unique<HostKernel<Run>>(std::move(run), std::move(implementation),
                                           workspace_bytes, flops);
}

// Throws Error where a kernel was compiled for another number of ranks than the job's, which is a
// pointer to its communicator; a listing binds without a job, null.
template <class Job>
void require_ranks(std::int64_t compiled, const Job& job) {
  if (const int size = job ? job->world().size : 1; size != compiled)
    fail<Error>("the step was compiled for {} ranks, and the job has {}", compiled, size);
}

template <class T>
T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

}  // namespace warpstep
