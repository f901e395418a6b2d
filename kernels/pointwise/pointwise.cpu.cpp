// Pointwise ops on the CPU, all bound by memory: every operand is streamed once.
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// Bytes are converted with the arithmetic of apply_pixels(), so that a batch has the same bits
// whether the loader or the backend normalises it.
PixelPlan plan_of(const Normalize& op, std::int64_t channels) {
  PixelPlan plan;
  plan.channels = static_cast<int>(channels);
  for (std::size_t c = 0; c < idx(channels); ++c) {
    plan.m[c][c] = op.scale[c];
    plan.shift[c] = op.shift[c];
  }
  return plan;
}

template <class X, class T>
void normalize_each(const X* x, T* y, std::int64_t pixels, std::int64_t channels,
                    const float* scale, const float* shift) {
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      y[channels * i + c] =
          rounded_to<T>(static_cast<float>(x[channels * i + c]) * scale[c] + shift[c]);
}

// Nothing to round; a choice between whole structures would not be vectorised.
WARPSTEP_LOOP float zero_if(bool zero, float number) {
  return zero ? 0 : number;
}
WARPSTEP_LOOP Bf16 zero_if(bool zero, Bf16 number) {
  return {zero ? std::uint16_t{0} : number.bits};
}

template <class T>
WARPSTEP_LOOP void relu_loop(const T* x, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = zero_if(as_float(x[i]) <= 0, x[i]);
}
template <class T>
const auto relu = vectorized<relu_loop<T>>();

template <class T>
WARPSTEP_LOOP void relu_grad_loop(const T* d_y, const T* y, T* d_x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) d_x[i] = zero_if(as_float(y[i]) <= 0, d_y[i]);
}
template <class T>
const auto relu_grad = vectorized<relu_grad_loop<T>>();

template <class T>
WARPSTEP_LOOP void add_loop(const T* a, const T* b, T* sum, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] = rounded_to<T>(as_float(a[i]) + as_float(b[i]));
}
template <class T>
const auto add = vectorized<add_loop<T>>();

std::int64_t element_count(const Operands& operands) {
  return operands.out_shape().count();
}

template <class T>
std::unique_ptr<Kernel> normalize_kernel(const Normalize& op, const Operands& operands) {
  const std::int64_t channels = operands.out_shape()[3],
                     pixels = operands.out_shape().count() / channels;
  const bool bytes = operands.in(0).type.dtype == DType::u8;
  if (bytes && channels <= 3)
    return host_kernel("vector loops", [plan = plan_of(op, channels), pixels](const Buffers& b) {
      const std::int64_t width = plan.channels;
      for_chunks(pixels, [&](std::int64_t begin, std::int64_t end) {
        const RowPlan row;
        const ImageExtent chunk_extent{1, end - begin};
        apply_pixels(plan, std::span(&row, 1), 0, as<std::uint8_t>(b.in[0]) + begin * width,
                     chunk_extent, chunk_extent, as<T>(b.out[0]) + begin * width);
      });
    });
  return host_kernel("loops", [op, bytes, channels, pixels](const Buffers& b) {
    for_chunks(pixels, [&](std::int64_t begin, std::int64_t end) {
      T* y = as<T>(b.out[0]) + begin * channels;
      if (bytes)
        normalize_each(as<std::uint8_t>(b.in[0]) + begin * channels, y, end - begin, channels,
                       op.scale.data(), op.shift.data());
      else
        normalize_each(as<float>(b.in[0]) + begin * channels, y, end - begin, channels,
                       op.scale.data(), op.shift.data());
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const Normalize& op, const Operands& operands) {
  return with_stored(op.dtype, [&]<class T>() { return normalize_kernel<T>(op, operands); });
}

std::unique_ptr<Kernel> bind(const Relu&, const Operands& operands) {
  return with_stored(operands.out().type.dtype, [count = element_count(operands)]<class T>() {
    return host_kernel("loops", [count](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        relu<T>(as<T>(b.in[0]) + begin, as<T>(b.out[0]) + begin, end - begin);
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const ReluGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  return with_stored(operands.out().type.dtype, [count = element_count(operands)]<class T>() {
    return host_kernel("loops", [count](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        relu_grad<T>(as<T>(b.in[0]) + begin, as<T>(b.in[1]) + begin, as<T>(b.out[0]) + begin,
                     end - begin);
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const Add&, const Operands& operands) {
  return with_stored(operands.out().type.dtype, [count = element_count(operands)]<class T>() {
    return host_kernel("loops", [count](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        add<T>(as<T>(b.in[0]) + begin, as<T>(b.in[1]) + begin, as<T>(b.out[0]) + begin,
               end - begin);
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const Upload&, const Operands& operands) {
  return host_kernel("copy", [bytes = operands.out().layout.bytes](const Buffers& b) {
    std::memcpy(b.out[0], b.in[0], bytes);
  });
}

// All layouts are plain here: nothing makes a Reorder but a test.
std::unique_ptr<Kernel> bind(const Reorder&, const Operands& operands) {
  return bind(Upload{}, operands);
}

}  // namespace warpstep::cpu
