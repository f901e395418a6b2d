// From a launcher's run-time arguments to its kernel's compile-time parameters. Does not include
// fmt, because some nvcc versions cannot compile it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// Throws DeviceError: `kernel` computes in f32, f16 and bf16.
[[noreturn]] void refuse_dtype(const char* kernel, DType dtype);

// Throws DeviceError: `kernel` was given `count` of `what`, and accepts up to `most`, in multiples
// of `multiple`.
[[noreturn]] void refuse_size(const char* kernel, const char* what, std::int64_t count,
                              std::int64_t most, std::int64_t multiple);

// Throws DeviceError: `kernel` has no form for this convolution, of x
// [images,height,width,channels] as stored to `out` channels.
[[noreturn]] void refuse_conv(const char* kernel, const std::int64_t (&x)[4], std::int64_t out);

// Allows launches of the kernel with so much dynamic shared memory; asks the runtime only once.
void allow_shared(const void* kernel, std::size_t bytes, const char* name);

// run.operator()<T>() with the element type of `dtype`.
template <class Run>
void dispatch(const char* kernel, DType dtype, Run run) {
  switch (dtype) {
    case DType::f32: return run.template operator()<float>();
    case DType::f16: return run.template operator()<__half>();
    case DType::bf16: return run.template operator()<__nv_bfloat16>();
    case DType::u8:
    case DType::i32: break;
  }
  refuse_dtype(kernel, dtype);
}

// Indices in kernels have 32 bits, because 64-bit ones cost twice the instructions: 2^31 vectors of
// 16 bytes are 32 GiB.
inline constexpr std::int64_t most_indices = std::int64_t{1} << 31;

// `count` / `multiple` as an index; throws DeviceError if there is a remainder or it reaches 2^31.
inline std::uint32_t index32(const char* kernel, const char* what, std::int64_t count,
                             std::int64_t multiple = 1) {
  if (count < 0 || count % multiple != 0 || count / multiple >= most_indices)
    refuse_size(kernel, what, count, (most_indices - 1) * multiple, multiple);
  return static_cast<std::uint32_t>(count / multiple);
}

// The number of blocks for `items`, `per_block` each; the sum does not wrap for numbers below 2^31.
inline std::uint32_t blocks_for(std::uint32_t items, std::uint32_t per_block) {
  return (items + per_block - 1) / per_block;
}

}  // namespace warpstep::cuda
