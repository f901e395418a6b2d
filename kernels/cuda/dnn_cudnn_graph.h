// A dnn::Graph in cuDNN's terms, from description to execution: OperationGraph is the graph as
// cuDNN's descriptors, EngineConfig one way in which cuDNN can compute it, CudnnPlan one of these
// ways ready to execute, with a handle per stream (Handles).
#pragma once

#include <cudnn_graph.h>
#include <driver_types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_descriptor.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda::dnn {

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
std::vector<EngineConfig> propose(const Descriptor& graph, const Descriptor& device,
                                  cudnnBackendHeurMode_t mode);

// Why the settings exclude an engine; empty if they do not. `full_f32`: the graph's tensors are all
// f32 and the settings do not allow tf32.
std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32);

cudnnDataType_t data_type(DType dtype);

// A tensor of cuDNN's graph as its descriptor. `by_value`: a number on the host.
struct TensorTerms {
  std::int64_t uid;
  cudnnDataType_t type;
  Extents dims, strides;
  bool is_virtual = false, by_value = false;
};
Descriptor tensor_descriptor(const TensorTerms& terms);

// What a plan of the graph is given addresses for, under the uids of cuDNN's graph: a tensor of
// ours, or a part of it that begins `offset` bytes later, or a number on the host (`of` is 0).
struct BoundTensor {
  std::int64_t uid = 0, of = 0;
  std::size_t offset = 0;
  float value = 0;
};
std::vector<BoundTensor> bound_tensors(const Graph& graph);
// Of an attention: parts of qkv and d_qkv, and its numbers.
std::vector<BoundTensor> bound_tensors(const Graph& graph, const Attention& attention);

// Why no plan of an attention may be used, whatever cuDNN's heuristics propose; empty if there is
// no reason. These are the limits that NVIDIA's cudnn-frontend keeps to (sdpa_support_surface.h):
// at most 128 features per head, on Hopper 256; no sequences of one position; and versions
// before 9.16 are wrong for sequences that are no whole tiles, or need cleared sums.
std::string attention_objection(const Graph& graph, const Settings& settings);
// Stands for the plan of an attention where there is no driver, without which cuDNN offers no
// engine for it even for an assumed device. Only its name and its workspace can be asked for.
std::unique_ptr<Plan> attention_planned_later(const Graph& graph, const Settings& settings);

// Owns the descriptors of a graph: operations refer to tensors, and the graph to operations.
class OperationGraph {
 public:
  // Throws DeviceError if cuDNN refuses an operation for every engine: extents that do not match,
  // unknown types.
  explicit OperationGraph(const Graph& graph);

  const Descriptor& descriptor() const { return graph_; }

 private:
  struct NamedTensor {
    std::int64_t uid;
    Descriptor descriptor;
  };

  friend class AttentionTerms;

  const Descriptor& tensor(std::int64_t uid) const;
  void add(const Convolution& conv);
  void add(const Pointwise& pointwise);
  void add(const ChannelSums& sums);
  void add(const NormGradSums& sums);
  void add(const Attention& attention);  // dnn_cudnn_attention.cpp

  const Graph& described_;  // while the constructor runs
  std::vector<NamedTensor> tensors_;
  std::vector<Descriptor> parameters_;  // of operations: padding and strides, kinds of arithmetic
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

// One cuDNN handle per stream, created when a stream first executes a plan: a handle must not serve
// two streams at once, and switching its stream in every call would cost more than the handle.
// Belongs to the thread that enqueues.
class Handles {
 public:
  // Throws DeviceError if the handle cannot be created, as within a capture.
  cudnnHandle_t of(cudaStream_t stream);

 private:
  struct Deleter {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };
  // By the stream's id, which is unique in a process; an address may be reused by another stream.
  std::map<unsigned long long, std::unique_ptr<cudnnContext, Deleter>> handles_;
};

// A finalised execution plan. Executing it neither allocates device memory nor waits (the caller
// provides the workspace), except that a plan's first run on a device loads its kernels: so a plan
// must run once before it is captured.
class CudnnPlan final : public Plan {
 public:
  // Both throw DeviceError if cuDNN cannot build the plan. `handles` is null without a device.
  CudnnPlan(const Graph& graph, const Descriptor& device, EngineConfig config,
            std::shared_ptr<Handles> handles);
  // From the result of saved(), for an equal graph on an equal device: 0.1 to 0.3 ms instead of a
  // few ms, or of seconds if the engine is compiled at run time.
  CudnnPlan(const Graph& graph, const Descriptor& device, const std::string& saved,
            std::shared_ptr<Handles> handles);

  std::string saved() const;
  void mark_measured();  // notes in implementation() that it was chosen by its measured time

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return "cudnn " + engine_; }
  void execute(CudaStream& stream, std::span<const Binding> bindings,
               void* workspace) const override;

 private:
  CudnnPlan(const Graph& graph, std::string engine, std::shared_ptr<Handles> handles);

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
  std::shared_ptr<Handles> handles_;
  mutable std::optional<VariantPack> pack_;  // of the last call
};

}  // namespace warpstep::cuda::dnn
