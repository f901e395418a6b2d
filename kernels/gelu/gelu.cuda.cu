// The Gaussian error linear unit. Bound by memory in every dtype: 4 bytes per element in f16 at 4.3
// TB/s leave 100 instructions per element, of which the error function takes some 25 and the
// logistic function 10. Not yet run on a GPU; shares of the peak go to bench/RECORDS.md.
#include "kernels/gelu/gelu.cuda.h"

#include "kernels/pointwise/elementwise.cuh"

namespace warpstep::cuda {
namespace {

constexpr float tanh_scale = 0.797884561F;  // sqrt(2 / pi)
constexpr float tanh_cubic = 0.044715F;

// (1 + tanh(u)) / 2 is the logistic function of 2 u. __expf overflows to infinity, which gives 0.
__device__ inline float tanh_share(float x) {
  return 1 / (1 + __expf(-2 * tanh_scale * (x + tanh_cubic * x * x * x)));
}

__device__ inline float normal_share(float x) {  // P(X <= x) of a standard normal X
  return 0.5F * erfcf(-0.707106781F * x);
}

struct GeluTanh {
  static constexpr bool binary = false;
  __device__ float operator()(float x, float) const { return x * tanh_share(x); }
};
struct GeluErf {
  static constexpr bool binary = false;
  __device__ float operator()(float x, float) const { return x * normal_share(x); }
};
struct GeluTanhGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float d_y, float x) const {
    const float share = tanh_share(x);
    const float slope_of_u = 2 * tanh_scale * (1 + 3 * tanh_cubic * x * x);
    return d_y * (share + x * share * (1 - share) * slope_of_u);
  }
};
struct GeluErfGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float d_y, float x) const {
    return d_y * (normal_share(x) + x * __expf(-0.5F * x * x) * 0.398942280F);
  }
};

}  // namespace

void gelu(bool tanh, const void* x, void* y, std::int64_t count, DType dtype, cudaStream_t stream) {
  if (tanh)
    launch_elementwise<GeluTanh>("gelu", x, nullptr, y, count, dtype, stream);
  else
    launch_elementwise<GeluErf>("gelu", x, nullptr, y, count, dtype, stream);
}

void gelu_grad(bool tanh, const void* d_y, const void* x, void* d_x, std::int64_t count,
               DType dtype, cudaStream_t stream) {
  if (tanh)
    launch_elementwise<GeluTanhGrad>("gelu_grad", d_y, x, d_x, count, dtype, stream);
  else
    launch_elementwise<GeluErfGrad>("gelu_grad", d_y, x, d_x, count, dtype, stream);
}

}  // namespace warpstep::cuda
