// A dnn::Graph in cuDNN's terms.
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

// Engines: the ways in which cuDNN can compute a graph, as its heuristics rank them, and which of
// them the settings allow.

// One way: an engine with values for its knobs (tile sizes, split-k and the like).
struct EngineConfig {
  Descriptor descriptor;
  std::int64_t engine = 0;  // its number among those for this kind of graph
  std::vector<cudnnBackendNumericalNote_t> numerical;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  bool is_fallback = false;  // of the slower, general engines

  bool has(cudnnBackendNumericalNote_t note) const;
  bool has(cudnnBackendBehaviorNote_t note) const;
  std::string text() const;  // "engine 41 (precompiled, tensor cores)"
};

// Best first, by cuDNN's estimate; none when no engine computes the graph. Throws DeviceError when
// the heuristics themselves fail.
std::vector<EngineConfig> propose(const Descriptor& graph, const Descriptor& device,
                                  cudnnBackendHeurMode_t mode);

// Why the settings rule an engine out; empty if they do not. `full_f32`: the graph's tensors are
// all f32 and the settings do not allow tf32.
std::string objection(const EngineConfig& config, const Settings& settings, bool full_f32);

// Owns the descriptors of a graph: operations refer to tensors, and the graph to operations.
class OperationGraph {
 public:
  // Throws DeviceError when cuDNN refuses an operation whatever the engine: extents that do not
  // fit each other, types that it does not know.
  explicit OperationGraph(const Graph& graph);

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

  std::vector<NamedTensor> tensors_;
  std::vector<Descriptor> parameters_;  // of operations: padding and strides, kinds of arithmetic
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

// A finalised execution plan of cuDNN, and the handles that plans are executed with.

// A cuDNN handle a stream, made when a stream first executes a plan: a handle must never serve two
// streams at once, and switching its stream in every call would cost more than the handle. Belongs
// to the thread that enqueues.
class Handles {
 public:
  // Throws DeviceError when the handle cannot be made; so it is within a capture.
  cudnnHandle_t of(cudaStream_t stream);

 private:
  struct Deleter {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };
  // By the stream's id, unique in a process: an address may come back as another stream's.
  std::map<unsigned long long, std::unique_ptr<cudnnContext, Deleter>> handles_;
};

// cuDNN's execute neither allocates device memory nor waits: the workspace is the caller's. The
// exception is a plan's first run on a device, which loads its kernels; so a plan has to run once
// before it is captured.
class CudnnPlan final : public Plan {
 public:
  // Throw DeviceError when cuDNN cannot build the plan. `handles` is null without a device.
  CudnnPlan(const Graph& graph, const Descriptor& device, EngineConfig config,
            std::shared_ptr<Handles> handles);
  // From what saved() gave, for an equal graph on an equal device: 0.1 to 0.3 ms in place of some
  // ms, or of seconds if the engine was compiled at run time.
  CudnnPlan(const Graph& graph, const Descriptor& device, const std::string& saved,
            std::shared_ptr<Handles> handles);

  std::string saved() const;
  void mark_measured();  // in implementation(): chosen for its time, not by heuristics

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return "cudnn " + engine_; }
  void execute(CudaStream& stream, std::span<const Binding> bindings,
               void* workspace) const override;

 private:
  CudnnPlan(const Graph& graph, std::string engine, std::shared_ptr<Handles> handles);

  // The addresses of one call. A step's never change, so that it is made once a plan.
  struct VariantPack {
    std::vector<void*> addresses;  // in the order of uids_
    void* workspace;
    Descriptor descriptor;
  };
  const Descriptor& variant_pack(std::span<const Binding> bindings, void* workspace) const;
  void* address(std::int64_t uid, std::span<const Binding> bindings) const;

  std::string name_;                  // the graph's, for messages
  std::vector<std::int64_t> uids_;    // of the tensors in memory
  std::string engine_;                // "engine 41 (precompiled, tensor cores)"
  std::optional<Descriptor> config_;  // what plan_ was built from
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  std::shared_ptr<Handles> handles_;
  mutable std::optional<VariantPack> pack_;  // of the last call
};

}  // namespace warpstep::cuda::dnn
