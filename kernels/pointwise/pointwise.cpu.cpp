// Pointwise ops on the CPU, all bound by memory: every operand is streamed once.
#include <cstring>

#include "kernels/cpu/cpu.h"
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

template <class X>
void normalize_each(const X* x, float* y, std::int64_t pixels, std::int64_t channels,
                    const float* scale, const float* shift) {
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      y[channels * i + c] = static_cast<float>(x[channels * i + c]) * scale[c] + shift[c];
}

WARPSTEP_LOOP void relu_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}
const auto relu = vectorized<relu_loop>();

WARPSTEP_LOOP void relu_grad_loop(const float* d_y, const float* y, float* d_x,
                                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) d_x[i] = y[i] > 0 ? d_y[i] : 0;
}
const auto relu_grad = vectorized<relu_grad_loop>();

WARPSTEP_LOOP void add_loop(const float* a, const float* b, float* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}
const auto add = vectorized<add_loop>();

std::int64_t element_count(const Operands& operands) {
  return operands.out_shape().count();
}

}  // namespace

std::unique_ptr<Kernel> bind(const Normalize& op, const Operands& operands) {
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
                     chunk_extent, chunk_extent, as<float>(b.out[0]) + begin * width);
      });
    });
  return host_kernel("loops", [op, bytes, channels, pixels](const Buffers& b) {
    for_chunks(pixels, [&](std::int64_t begin, std::int64_t end) {
      float* y = as<float>(b.out[0]) + begin * channels;
      if (bytes)
        normalize_each(as<std::uint8_t>(b.in[0]) + begin * channels, y, end - begin, channels,
                       op.scale.data(), op.shift.data());
      else
        normalize_each(as<float>(b.in[0]) + begin * channels, y, end - begin, channels,
                       op.scale.data(), op.shift.data());
    });
  });
}

std::unique_ptr<Kernel> bind(const Relu&, const Operands& operands) {
  return host_kernel("loops", [count = element_count(operands)](const Buffers& b) {
    for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      relu(as<float>(b.in[0]) + begin, as<float>(b.out[0]) + begin, end - begin);
    });
  });
}

std::unique_ptr<Kernel> bind(const ReluGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  return host_kernel("loops", [count = element_count(operands)](const Buffers& b) {
    for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      relu_grad(as<float>(b.in[0]) + begin, as<float>(b.in[1]) + begin, as<float>(b.out[0]) + begin,
                end - begin);
    });
  });
}

std::unique_ptr<Kernel> bind(const Add&, const Operands& operands) {
  return host_kernel("loops", [count = element_count(operands)](const Buffers& b) {
    for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      add(as<float>(b.in[0]) + begin, as<float>(b.in[1]) + begin, as<float>(b.out[0]) + begin,
          end - begin);
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
