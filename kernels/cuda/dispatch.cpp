#include "kernels/cuda/dispatch.h"

#include "engine/core/error.h"

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

}  // namespace warpstep::cuda
