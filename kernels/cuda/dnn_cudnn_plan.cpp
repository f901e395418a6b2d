#include "kernels/cuda/dnn_cudnn_plan.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda::dnn {

cudnnHandle_t Handles::of(cudaStream_t stream) {
  unsigned long long id = 0;
  check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
  const auto found = handles_.find(id);
  if (found != handles_.end()) return found->second.get();

  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone) {
    fail<DeviceError>(
        "the first cuDNN plan of a stream is executed within a capture, where no handle can be "
        "made; run the step once before it is captured");
  }
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate");
  std::unique_ptr<cudnnContext, Deleter> owned(handle);
  check(cudnnSetStream(handle, stream), "cudnnSetStream");
  handles_.emplace(id, std::move(owned));
  return handle;
}

CudnnPlan::CudnnPlan(const Graph& graph, std::string engine, std::shared_ptr<Handles> handles)
    : name_(graph.name),
      engine_(std::move(engine)),
      plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
      handles_(std::move(handles)) {
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.is_virtual) uids_.push_back(tensor.uid);
  }
}

CudnnPlan::CudnnPlan(const Graph& graph, const Descriptor& device, EngineConfig config,
                     std::shared_ptr<Handles> handles)
    : CudnnPlan(graph, config.text(), std::move(handles)) {
  config_ = std::move(config.descriptor);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config_)
      .finalize("a plan");
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

CudnnPlan::CudnnPlan(const Graph& graph, const Descriptor& device, const std::string& saved,
                     std::shared_ptr<Handles> handles)
    : CudnnPlan(graph, saved.substr(0, saved.find('\n')), std::move(handles)) {
  const std::span<const char> json = std::span(saved).subspan(engine_.size() + 1);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device)
      .set_list<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json)
      .finalize("a plan that was kept");
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

std::string CudnnPlan::saved() const {
  return engine_ + '\n' + plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
}

void CudnnPlan::mark_measured() {
  engine_.insert(engine_.rfind(')'), ", measured");
}

void CudnnPlan::execute(CudaStream& stream, std::span<const Binding> bindings,
                        void* workspace) const {
  if (handles_ == nullptr) {
    fail<DeviceError>("{}: planned for a device that is only assumed, and cannot be executed",
                      name_);
  }
  const Descriptor& pack = variant_pack(bindings, workspace);
  check(cudnnBackendExecute(handles_->of(stream.handle()), plan_.handle(), pack.handle()),
        name_.c_str());
}

const Descriptor& CudnnPlan::variant_pack(std::span<const Binding> bindings,
                                          void* workspace) const {
  const auto is_bound_to = [&](std::int64_t uid, void* bound) {
    return address(uid, bindings) == bound;
  };
  if (pack_ && pack_->workspace == workspace &&
      std::ranges::equal(uids_, pack_->addresses, is_bound_to)) {
    return pack_->descriptor;
  }
  std::vector<void*> addresses;
  for (const std::int64_t uid : uids_) addresses.push_back(address(uid, bindings));
  Descriptor descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  descriptor.set_list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids_)
      .set_list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("a plan's addresses");
  pack_ = VariantPack{std::move(addresses), workspace, std::move(descriptor)};
  return pack_->descriptor;
}

void* CudnnPlan::address(std::int64_t uid, std::span<const Binding> bindings) const {
  const auto found = std::ranges::find(bindings, uid, &Binding::uid);
  if (found == bindings.end() || found->address == nullptr) {
    fail<Error>("{}: the tensor {} of the graph is bound to no memory", name_, uid);
  }
  return found->address;
}

}  // namespace warpstep::cuda::dnn
