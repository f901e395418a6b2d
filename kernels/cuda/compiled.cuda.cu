#include "kernels/cuda/compiled.cuda.h"

#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {
namespace {

// Never launched: only its attributes are read.
__global__ void asked_kernel() {}

}  // namespace

int compiled_capability() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(asked_kernel)),
        "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}

}  // namespace warpstep::cuda
