// Launchers of the pointwise CUDA kernels. Matrices are rows of `pitch` elements; `dtype` is that
// of all floating-point operands; all arithmetic is in f32. Addresses are aligned to 16 bytes.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// y[p][c] = x[p][c] * scale[c] + shift[c] for c < channels, and 0 for the channels of y beyond:
// u8 or f32 pixels of 1 to 4 channels, to pixels of `pitch` channels (a multiple of 16 bytes).
struct NormalizeShape {
  std::int64_t pixels = 0;
  int channels = 0;
  int pitch = 0;
  std::array<float, 4> scale{}, shift{};
};
void normalize(const NormalizeShape& shape, const std::uint8_t* x, void* y, DType dtype,
               cudaStream_t stream);
void normalize(const NormalizeShape& shape, const float* x, void* y, DType dtype,
               cudaStream_t stream);

void relu(const void* x, void* y, std::int64_t count, DType dtype, cudaStream_t stream);
// d_x = 0 where y <= 0, else d_y; d_x may be d_y.
void relu_grad(const void* d_y, const void* y, void* d_x, std::int64_t count, DType dtype,
               cudaStream_t stream);
void add(const void* a, const void* b, void* y, std::int64_t count, DType dtype,
         cudaStream_t stream);

// Copies rows of `columns` elements from one pitch to another; the rest of y's rows is set to 0.
// Elements of 1, 2 or 4 bytes.
void copy_rows(const void* x, std::int64_t x_pitch, void* y, std::int64_t y_pitch,
               std::int64_t rows, std::int64_t columns, std::size_t element_bytes,
               cudaStream_t stream);

// y[r][c] = max(0, y[r][c] + bias[c]), or without the max: after a convolution for which cuDNN has
// no engine with a fused bias. bias may be null.
void bias_relu(void* y, const void* bias, bool relu, std::int64_t rows, std::int64_t channels,
               DType dtype, cudaStream_t stream);

// sums[c] = sum over rows of x[r][c], deterministic: each block sums rows, and the last block to
// finish over the same columns adds the blocks in order (one launch). `workspace` has
// column_sums_workspace() bytes; `tickets` are column_sums_tickets() words that are 0 before and
// after the launch.
std::size_t column_sums_workspace(std::int64_t rows, std::int64_t channels);
std::size_t column_sums_tickets(std::int64_t channels);
void column_sums(const void* x, void* sums, std::int64_t rows, std::int64_t channels, DType dtype,
                 void* workspace, std::uint32_t* tickets, cudaStream_t stream);

// relu_grad() over [rows, channels], and column_sums() of d_x with its workspace and tickets, in
// one launch.
void relu_grad_sums(const void* d_y, const void* y, void* d_x, void* sums, std::int64_t rows,
                    std::int64_t channels, DType dtype, void* workspace, std::uint32_t* tickets,
                    cudaStream_t stream);

// bias_relu() and column_sums() for rows that are not padded: those of convolutions in groups, and
// of sums with a value that is stored plain.

inline bool are_whole_vectors(std::int64_t channels, DType dtype) {
  return channels % static_cast<std::int64_t>(16 / size_bytes(dtype)) == 0;
}

void bias_relu_unaligned(void* y, const void* bias, bool relu, std::int64_t rows,
                         std::int64_t channels, DType dtype, cudaStream_t stream);
// Rows of x have `pitch` elements; sums of channels beyond those are 0.
void column_sums_unaligned(const void* x, std::int64_t pitch, void* sums, std::int64_t rows,
                           std::int64_t channels, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda
