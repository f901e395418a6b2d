// im2col: bound by oneDNN's matrix products where there are many channels, else by memory: the
// matrix of columns, kernel^2 times the input, is written once and read once.
#include "kernels/conv/conv.cpu.h"

#include <algorithm>

#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t most_column_bytes =
    std::int64_t{4} << 20;  // per chunk: half of it stays in a second-level cache

struct Im2col {
  Conv op;
  std::int64_t images, height, width, channels;  // of x
  std::int64_t out_height, out_width;
  std::int64_t group_channels, group_out;
  std::int64_t columns;     // of the matrix: kernel * kernel * channels of a group
  std::int64_t chunk_rows;  // rows of outputs whose columns exist at once

  Im2col(const Conv& conv, const Shape& x, const Shape& z)
      : op(conv),
        images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        out_height(z[1]),
        out_width(z[2]),
        group_channels(x[3] / conv.groups),
        group_out(conv.out / conv.groups),
        columns(conv.kernel * conv.kernel * group_channels) {
    const std::int64_t row_bytes = out_width * columns * static_cast<std::int64_t>(sizeof(float));
    chunk_rows = std::clamp<std::int64_t>(most_column_bytes / row_bytes, 1, out_rows());
  }

  std::int64_t out_rows() const { return images * out_height; }
  std::size_t bytes() const { return idx(chunk_rows * out_width * columns) * sizeof(float); }
  const float* weights(const float* all, std::int64_t group) const {
    return all + group * group_out * columns;
  }

  // Calls run(first row of outputs, rows) for each chunk.
  template <class Run>
  void for_chunks(Run run) const {
    for (std::int64_t row = 0; row < out_rows(); row += chunk_rows)
      run(row, std::min(chunk_rows, out_rows() - row));
  }

  void gather(const float* x, std::int64_t group, std::int64_t first, std::int64_t rows,
              float* matrix) const;
  void scatter(const float* matrix, std::int64_t group, std::int64_t first, std::int64_t rows,
               float* d_x) const;
};

// matrix [rows * out_width, columns] of a group from x.
void Im2col::gather(const float* x, std::int64_t group, std::int64_t first, std::int64_t rows,
                    float* matrix) const {
#pragma omp parallel for schedule(static)
  for (std::int64_t pixel = 0; pixel < rows * out_width; ++pixel) {
    const std::int64_t row = first + pixel / out_width, image = row / out_height;
    const std::int64_t h0 = row % out_height * op.stride - op.padding,
                       w0 = pixel % out_width * op.stride - op.padding;
    float* to = matrix + pixel * columns;
    for (std::int64_t kh = 0; kh < op.kernel; ++kh)
      for (std::int64_t kw = 0; kw < op.kernel; ++kw, to += group_channels) {
        const std::int64_t h = h0 + kh * op.dilation, w = w0 + kw * op.dilation;
        if (h < 0 || h >= height || w < 0 || w >= width)
          std::fill_n(to, group_channels, 0.0F);
        else
          std::copy_n(x + ((image * height + h) * width + w) * channels + group * group_channels,
                      group_channels, to);
      }
  }
}

// The adjoint: adds a group's matrix to d_x. One thread adds all of the chunk's contributions to a
// row of d_x, in order.
void Im2col::scatter(const float* matrix, std::int64_t group, std::int64_t first, std::int64_t rows,
                     float* d_x) const {
  const std::int64_t first_image = first / out_height, last_image = (first + rows - 1) / out_height;
#pragma omp parallel for schedule(static)
  for (std::int64_t x_row = first_image * height; x_row < (last_image + 1) * height; ++x_row)
    for (std::int64_t kh = 0; kh < op.kernel; ++kh) {
      const std::int64_t reach = x_row % height + op.padding - kh * op.dilation;
      const std::int64_t row = x_row / height * out_height + reach / op.stride;
      if (reach < 0 || reach % op.stride != 0 || reach / op.stride >= out_height || row < first ||
          row >= first + rows)
        continue;
      for (std::int64_t j = 0; j < out_width; ++j)
        for (std::int64_t kw = 0; kw < op.kernel; ++kw) {
          const std::int64_t w = j * op.stride - op.padding + kw * op.dilation;
          if (w < 0 || w >= width) continue;
          const float* from = matrix + ((row - first) * out_width + j) * columns +
                              (kh * op.kernel + kw) * group_channels;
          float* to = d_x + (x_row * width + w) * channels + group * group_channels;
          for (std::int64_t c = 0; c < group_channels; ++c) to[c] += from[c];
        }
    }
}

// c [m,n] = a [m,k] b [k,n] + keep c. A matrix with 'T' is stored transposed; `stride` is the
// distance of stored rows.
struct Matrix {
  char transposed;
  const float* data;
  std::int64_t stride;
};
void product(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float keep,
             float* c, std::int64_t c_stride) {
  const dnnl_status_t status = dnnl_sgemm(a.transposed, b.transposed, m, n, k, 1.0F, a.data,
                                          a.stride, b.data, b.stride, keep, c, c_stride);
  if (status != dnnl_success)
    fail<DeviceError>("cpu: oneDNN's product of {}x{} and {}x{} failed with status {}", m, k, k, n,
                      static_cast<int>(status));
}

void add_bias_and_relu(const Im2col& s, const float* bias, std::int64_t pixels, float* z) {
#pragma omp parallel for schedule(static)
  for (std::int64_t p = 0; p < pixels; ++p)
    for (std::int64_t o = 0; o < s.op.out; ++o) {
      float& value = z[p * s.op.out + o];
      if (bias) value += bias[o];
      if (s.op.relu) value = value > 0 ? value : 0;
    }
}

constexpr const char* implementation = "im2col + gemm";

}  // namespace

std::unique_ptr<Kernel> im2col_conv(const Conv& op, const Shape& x, const Shape& z) {
  const Im2col s(op, x, z);
  const auto run = [s](const Buffers& b) {
    auto* matrix = as<float>(b.workspace);
    s.for_chunks([&](std::int64_t first, std::int64_t rows) {
      const std::int64_t pixels = rows * s.out_width;
      float* out = as<float>(b.out[0]) + first * s.out_width * s.op.out;
      for (std::int64_t g = 0; g < s.op.groups; ++g) {
        s.gather(as<float>(b.in[0]), g, first, rows, matrix);
        product(pixels, s.group_out, s.columns, {'N', matrix, s.columns},
                {'T', s.weights(as<float>(b.in[1]), g), s.columns}, 0, out + g * s.group_out,
                s.op.out);
      }
      if (s.op.bias || s.op.relu)
        add_bias_and_relu(s, s.op.bias ? as<float>(b.in[2]) : nullptr, pixels, out);
    });
  };
  return host_kernel(implementation, run, s.bytes());
}

std::unique_ptr<Kernel> im2col_data_grad(const Conv& op, const Shape& x, const Shape& z) {
  const Im2col s(op, x, z);
  const auto run = [s](const Buffers& b) {
    auto *matrix = as<float>(b.workspace), *d_x = as<float>(b.out[0]);
    std::fill_n(d_x, s.images * s.height * s.width * s.channels, 0.0F);
    s.for_chunks([&](std::int64_t first, std::int64_t rows) {
      const float* d_z = as<float>(b.in[0]) + first * s.out_width * s.op.out;
      for (std::int64_t g = 0; g < s.op.groups; ++g) {
        product(rows * s.out_width, s.columns, s.group_out, {'N', d_z + g * s.group_out, s.op.out},
                {'N', s.weights(as<float>(b.in[1]), g), s.columns}, 0, matrix, s.columns);
        s.scatter(matrix, g, first, rows, d_x);
      }
    });
  };
  return host_kernel(implementation, run, s.bytes());
}

std::unique_ptr<Kernel> im2col_weight_grad(const Conv& op, const Shape& x, const Shape& z) {
  const Im2col s(op, x, z);
  const auto run = [s](const Buffers& b) {
    auto* matrix = as<float>(b.workspace);
    const auto* d_z = as<float>(b.in[1]);
    s.for_chunks([&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t g = 0; g < s.op.groups; ++g) {
        s.gather(as<float>(b.in[0]), g, first, rows, matrix);
        product(s.group_out, s.columns, rows * s.out_width,
                {'T', d_z + first * s.out_width * s.op.out + g * s.group_out, s.op.out},
                {'N', matrix, s.columns}, first == 0 ? 0 : 1,
                as<float>(b.out[0]) + g * s.group_out * s.columns, s.columns);
      }
    });
    if (!s.op.bias) return;
    auto* d_bias = as<float>(b.out[1]);
#pragma omp parallel for schedule(static)
    for (std::int64_t o = 0; o < s.op.out; ++o) {
      double sum = 0;
      for (std::int64_t p = 0; p < s.out_rows() * s.out_width; ++p)
        sum += static_cast<double>(d_z[p * s.op.out + o]);
      d_bias[o] = static_cast<float>(sum);
    }
  };
  return host_kernel(implementation, run, s.bytes());
}

}  // namespace warpstep::cpu
