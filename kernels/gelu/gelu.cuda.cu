// The Gaussian error linear unit. Bound by memory in every dtype: 4 bytes per element in f16 at 4.3
// TB/s leave 100 instructions per element, of which the error function takes some 25 and the
// logistic function 10. The gradient reaches 4.0 TB/s on an H200 in bf16, with the sums of its
// columns 3.7.
#include "kernels/gelu/gelu.cuda.h"

#include "kernels/pointwise/column_sums.cuh"
#include "kernels/pointwise/elementwise.cuh"

namespace warpstep::cuda {
namespace {

// (1 + tanh(u)) / 2 is the logistic function of 2 u = x (k1 + k3 x^2).
constexpr float k1 = 1.59576912F;    // 2 sqrt(2 / pi)
constexpr float k3 = 0.0713548163F;  // 0.044715 k1

// Both units are x or 0, and their slopes 1 or 0, to float32's last digit where |x| is larger:
// there slopes are those of the border, so that no power of a large x overflows. NaN stays NaN.
constexpr float tanh_border = 9.9F, erf_border = 13.1F;
__device__ inline float within(float x, float border) {
  const float below = x > border ? border : x;
  return below < -border ? -border : below;
}

__device__ inline float normal_share(float x) {  // P(X <= x) of a standard normal X
  return 0.5F * erfcf(-0.707106781F * x);
}

template <class T>
struct GeluTanh {
  static constexpr bool binary = false;
  __device__ float operator()(float x, float) const {
    if (x < -tanh_border) return 0;
    const float e = exponential<T>(-x * (k1 + k3 * x * x));
    return sizeof(T) == sizeof(float) ? x / (1 + e) : x * reciprocal<T>(1 + e);
  }
};
struct GeluErf {
  static constexpr bool binary = false;
  __device__ float operator()(float x, float) const {
    return x < -erf_border ? 0 : x * normal_share(x);
  }
};
// Of the logistic function s, 1 - s is s e: the subtraction would lose its digits.
template <class T>
__device__ inline float tanh_slope(float x) {
  const float c = within(x, tanh_border), square = c * c;
  const float e = exponential<T>(-c * (k1 + k3 * square)), s = reciprocal<T>(1 + e);
  return s + c * s * (e * s) * (k1 + 3 * k3 * square);
}
template <class T>
struct GeluTanhGrad {
  static constexpr bool binary = true;
  __device__ float operator()(float d_y, float x) const { return d_y * tanh_slope<T>(x); }
};
struct GeluErfGrad {
  static constexpr bool binary = true;
  static constexpr unsigned rows_ahead = 2;
  __device__ float operator()(float d_y, float x) const {
    const float c = within(x, erf_border);
    return d_y * (normal_share(c) + c * expf(-0.5F * c * c) * 0.398942280F);
  }
};

template <template <class> class F>
void launch_unit(const char* name, const void* a, const void* b, void* y, std::int64_t count,
                 DType dtype, cudaStream_t stream) {
  dispatch(name, dtype,
           [&]<class T>() { launch_elementwise_of<T, F<T>>(name, a, b, y, count, stream); });
}

}  // namespace

void gelu(bool tanh, const void* x, void* y, std::int64_t count, DType dtype, cudaStream_t stream) {
  if (tanh)
    launch_unit<GeluTanh>("gelu", x, nullptr, y, count, dtype, stream);
  else
    launch_elementwise<GeluErf>("gelu", x, nullptr, y, count, dtype, stream);
}

void gelu_grad(bool tanh, const void* d_y, const void* x, void* d_x, std::int64_t count,
               DType dtype, cudaStream_t stream) {
  if (tanh)
    launch_unit<GeluTanhGrad>("gelu_grad", d_y, x, d_x, count, dtype, stream);
  else
    launch_elementwise<GeluErfGrad>("gelu_grad", d_y, x, d_x, count, dtype, stream);
}

void gelu_grad_sums(bool tanh, const void* d_y, const void* x, void* d_x, void* sums,
                    std::int64_t rows, std::int64_t channels, DType dtype, void* workspace,
                    std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("gelu_grad_sums", dtype, [&]<class T>() {
    const auto launch_of = [&]<class F>() {
      launch_elementwise_sums<T, F>("gelu_grad_sums", d_y, x, d_x, sums, rows, channels, workspace,
                                    tickets, stream);
    };
    if (tanh)
      launch_of.template operator()<GeluTanhGrad<T>>();
    else
      launch_of.template operator()<GeluErfGrad>();
  });
}

}  // namespace warpstep::cuda
