#include "kernels/cuda/dispatch.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"

namespace warpstep::cuda {

void refuse_dtype(const char* kernel, DType dtype) {
  fail<DeviceError>("{}: no CUDA kernel for elements of {}; it computes in f32, f16 and bf16",
                    kernel, name(dtype));
}

void refuse_size(const char* kernel, const char* what, std::int64_t count, std::int64_t most,
                 std::int64_t multiple) {
  fail<DeviceError>("{}: {} {} given; the CUDA kernel accepts 0 to {}, in multiples of {}", kernel,
                    count, what, most, multiple);
}

void refuse_conv(const char* kernel, const std::int64_t (&x)[4], std::int64_t out) {
  fail<DeviceError>("{}: no CUDA kernel for the convolution of {}x{}x{}x{} to {} channels", kernel,
                    x[0], x[1], x[2], x[3], out);
}

void allow_shared(const void* kernel, std::size_t bytes, const char* name) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> allowed;  // of a device
  const std::lock_guard lock(mutex);
  int device = 0;
  check(cudaGetDevice(&device), name);
  std::size_t& most = allowed[{device, kernel}];
  if (most >= bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        name);
  most = bytes;
}

}  // namespace warpstep::cuda
