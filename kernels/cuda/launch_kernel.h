// Makes a Kernel from a launcher, for the backend's host code and for custom ops.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/runtime.h"
#include "kernels/kernel.h"

namespace warpstep::cuda {

// A kernel from a callable (const Buffers&, CudaStream&) that only launches.
template <class Run>
class LaunchKernel final : public Kernel {
 public:
  LaunchKernel(std::string implementation, std::size_t workspace_bytes, Run run,
               std::string without_tensor_cores)
      : implementation_(std::move(implementation)),
        without_tensor_cores_(std::move(without_tensor_cores)),
        workspace_bytes_(workspace_bytes),
        run_(std::move(run)) {}
  void enqueue(Stream& stream, const Buffers& buffers) const override {
    run_(buffers, static_cast<CudaStream&>(stream));
  }
  std::string implementation() const override { return implementation_; }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string without_tensor_cores() const override { return without_tensor_cores_; }

 private:
  std::string implementation_, without_tensor_cores_;
  std::size_t workspace_bytes_;
  Run run_;
};

template <class Run>
std::unique_ptr<Kernel> launch_kernel(std::string implementation, Run run,
                                      std::size_t workspace_bytes = 0,
                                      std::string without_tensor_cores = {}) {
  return std::make_unique<LaunchKernel<Run>>(std::move(implementation), workspace_bytes,
                                             std::move(run), std::move(without_tensor_cores));
}

}  // namespace warpstep::cuda
