// A finalised execution plan of cuDNN, and the handles that plans are executed with.
#pragma once

#include <cudnn_graph.h>
#include <driver_types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_cudnn_engines.h"
#include "kernels/cuda/dnn_descriptor.h"

namespace warpstep::cuda::dnn {

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
