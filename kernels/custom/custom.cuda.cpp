// A user's own op provides its kernels.
#include <cuda_runtime_api.h>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

// Whether the stream's capture can no longer succeed.
bool is_capture_lost(const CudaStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ignore(cudaStreamIsCapturing(stream.handle(), &status));
  return status == cudaStreamCaptureStatusInvalidated;
}

// A user's kernel that names itself where it spoils the capture of a step, which is seen only when
// the capture ends.
class CustomKernel final : public Kernel {
 public:
  CustomKernel(std::unique_ptr<Kernel> kernel, std::string title)
      : kernel_(std::move(kernel)), title_(std::move(title)) {}

  std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  std::string implementation() const override { return kernel_->implementation(); }
  std::string without_tensor_cores() const override { return kernel_->without_tensor_cores(); }
  void enqueue(Stream& stream, const Buffers& buffers) const override {
    const auto& cuda_stream = static_cast<const CudaStream&>(stream);
    try {
      kernel_->enqueue(stream, buffers);
    } catch (const DeviceLost&) {
      throw;
    } catch (const DeviceError& error) {
      if (is_capture_lost(cuda_stream)) refuse(fmt::format(" ({})", error.what()));
      throw;
    }
    if (is_capture_lost(cuda_stream)) refuse("");
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail<DeviceError>(
        "cuda: {} cannot be part of a step that is captured as a graph: its enqueue() allocated, "
        "waited, or used another stream{}; let its bind() allocate, or run with --no-graph",
        title_, why);
  }

  std::unique_ptr<Kernel> kernel_;
  std::string title_;
};

}  // namespace

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  for (const int id : operands.node.out)
    if (!operands.graph.value(id).layout.tag.empty())
      fail<Error>(
          "cuda: {} computes a part of the gradient of a parameter that a layer stores as {}; a "
          "custom op writes plain values: give it its own parameters",
          operands.node.title(), operands.graph.value(id).layout.tag);
  std::unique_ptr<Kernel> kernel = op.op->bind("cuda", operands.graph, operands.node);
  if (!kernel)
    fail<DeviceError>("cuda: {} has no kernel for this backend: its bind() returns none",
                      operands.node.title());
  return std::make_unique<CustomKernel>(std::move(kernel), operands.node.title());
}

}  // namespace warpstep::cuda
