// Kernels are compiled by nvcc for a GPU, or by the host compiler for the tests' emulated grid.
// Compilation differences live in three headers: this one, overlap.cuh and tensor_cores.cuh.
// Kernels use those and CUDA's plain built-ins, but no <<<>>>, extern __shared__, inline PTX or
// __CUDA_ARCH__.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/check.h"

#if !defined(__CUDACC__)
#include <simt.h>  // provided by the tests, which compile kernels for the host
#endif

namespace warpstep::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// The block's dynamic shared memory as an array of T.
template <class T>
__device__ inline T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#else
  return reinterpret_cast<T*>(simt::dynamic_shared());
#endif
}

// Nanoseconds of the device's clock, the same for all its kernels; it may advance in steps of 1 us.
__device__ inline std::uint64_t device_time_ns() {
#if defined(__CUDACC__)
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return simt::time_ns();
#endif
}

// 2^x in one instruction, with an error of up to 2^-22 of it, and 0 below 2^-126: for results that
// are rounded to 16 bits.
__device__ inline float fast_exp2(float x) {
#if defined(__CUDACC__)
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// Likewise 1 / x, with an error of up to 2^-23 of it. 0 from an x of 2^126 on.
__device__ inline float fast_reciprocal(float x) {
#if defined(__CUDACC__)
  float y = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

// Enqueues kernel<<<grid, block, shared_bytes, stream>>>(args...). Throws a DeviceError that names
// the kernel if the launch is refused. Arguments are copied, as by any launch.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args) {
#if defined(__CUDACC__)
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
        name);
#else
  simt::launch(
      name, reinterpret_cast<const void*>(kernel), shape.grid, shape.block, shape.shared_bytes,
      shape.stream,
      [kernel, ... copies = static_cast<Params>(std::forward<Args>(args))] { kernel(copies...); });
#endif
}

}  // namespace warpstep::cuda
