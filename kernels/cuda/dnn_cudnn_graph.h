// A dnn::Graph in cuDNN's terms, from description to execution: OperationGraph is the graph as
// cuDNN's descriptors, EngineConfig one way in which cuDNN can compute it, CudnnPlan one of these
// ways ready to execute, with the handle of its stream.
#pragma once

#include <cudnn_graph.h>
#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_cudnn_attention.h"
#include "kernels/cuda/dnn_descriptor.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda::dnn {

// What plans are made for: the device's properties, which may be assumed, or, where it is set, a
// handle. cuDNN documents both ways; only the second needs a device while it plans.
struct Target {
  const Descriptor& device;
  cudnnHandle_t handle = nullptr;
  bool can_run = false;
};

// One way to compute a graph: an engine with values for its knobs (tile sizes, split-k and the
// like).
struct EngineConfig {
  Descriptor descriptor;
  std::int64_t engine = 0;  // its number among those for this kind of graph
  std::vector<cudnnBackendNumericalNote_t> numerical;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  bool is_fallback = false;  // one of the slower, general engines

  bool has(cudnnBackendNumericalNote_t note) const;
  bool has(cudnnBackendBehaviorNote_t note) const;
  std::string text() const;  // "engine 41 (precompiled, tensor cores)"
};

// The configurations that cuDNN's heuristics propose, best first by their estimate; none if no
// engine computes the graph. Throws DeviceError if the heuristics themselves fail.
std::vector<EngineConfig> propose(const Descriptor& graph, const Target& target,
                                  cudnnBackendHeurMode_t mode);

// Why the settings exclude an engine; empty if they do not. `full_f32`: the graph's tensors are all
// f32 and the settings do not allow tf32.
std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32);

cudnnDataType_t data_type(DType dtype);

Descriptor tensor_descriptor(const TensorTerms& terms);
// Of every tensor of the graph that is in memory.
std::vector<BoundTensor> bound_tensors(const Graph& graph);

// Owns the descriptors of a graph: operations refer to tensors, and the graph to operations.
class OperationGraph {
 public:
  // Throws DeviceError if cuDNN refuses an operation for every engine: extents that do not match,
  // unknown types.
  explicit OperationGraph(const Graph& graph, cudnnHandle_t handle = nullptr);

  const Descriptor& descriptor() const { return graph_; }

 private:
  struct NamedTensor {
    std::int64_t uid;
    Descriptor descriptor;
  };

  const Descriptor& tensor(std::int64_t uid) const;
  void add(const Convolution& conv);
  void add(const Pointwise& pointwise);
  void add(const ChannelSums& sums);
  void add(const NormGradSums& sums);
  void add(const Attention& attention);
  void add(const MatmulTerms& product);
  void add(const PointwiseTerms& pointwise);
  void add(const ReductionTerms& reduction);
  void add(const ReshapeTerms& reshape);

  const Graph& described_;  // while the constructor runs
  std::vector<NamedTensor> tensors_;
  std::vector<Descriptor> parameters_;  // of operations: padding and strides, kinds of arithmetic
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

// The stream's own cuDNN handle, created when it first executes a plan: a handle must not serve two
// streams at once, and switching its stream in every call would cost more than the handle. Throws
// DeviceError if it cannot be created, as within a capture.
cudnnHandle_t handle_of(CudaStream& stream);

// A finalised execution plan. Executing it neither allocates device memory nor waits (the caller
// provides the workspace), except that a plan's first run on a device loads its kernels: so a plan
// must run once before it is captured.
class CudnnPlan final : public Plan {
 public:
  // Both throw DeviceError if cuDNN cannot build the plan.
  CudnnPlan(const Graph& graph, const Target& target, EngineConfig config);
  // From the result of saved(), for an equal graph on an equal device and a target of the same way:
  // 0.1 to 0.3 ms instead of a few ms, or of seconds if the engine is compiled at run time.
  CudnnPlan(const Graph& graph, const Target& target, const std::string& saved);

  // Begins with a line for people, the engine's; the same engine planned for a handle is another
  // plan.
  std::string saved() const;
  static bool is_by_handle(std::string_view saved);
  void mark_measured();  // notes in implementation() that it was chosen by its measured time

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return "cudnn " + engine_; }
  void execute(CudaStream& stream, std::span<const Binding> bindings,
               void* workspace) const override;

 private:
  CudnnPlan(const Graph& graph, std::string engine, const Target& target);

  // The addresses of one call. They never change between steps, so each plan creates it once.
  struct VariantPack {
    std::vector<void*> addresses;  // in the order of bound_
    void* workspace;
    Descriptor descriptor;
  };
  const Descriptor& variant_pack(std::span<const Binding> bindings, void* workspace) const;
  void* address(const BoundTensor& bound, std::span<const Binding> bindings) const;

  std::string name_;                  // the graph's, for messages
  std::vector<BoundTensor> bound_;    // a plan is given the addresses of its numbers, too
  std::string engine_;                // "engine 41 (precompiled, tensor cores)"
  std::optional<Descriptor> config_;  // plan_ refers to it
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  bool by_handle_ = false, can_run_ = false;
  mutable std::optional<VariantPack> pack_;  // of the last call
};

}  // namespace warpstep::cuda::dnn
