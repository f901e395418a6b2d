// The adjoints of 3x3 convolutions over eight input channels. Bound by arithmetic: 18 multiply-adds
// per vector of d_x for 10 loads. Figures: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"

#include <omp.h>

#include <cstring>

#include "engine/core/cpu_isa.h"

namespace warpstep::cpu {
namespace {

#pragma GCC push_options
#pragma GCC target("avx512f,fma")
namespace avx512 {
constexpr int lanes = 16, pixels = 8, channels = 8;
#include "kernels/conv/eight_channels.inc"
}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int lanes = 8, pixels = 4, channels = 4;
#include "kernels/conv/eight_channels.inc"
}  // namespace avx2
#pragma GCC pop_options

struct Loops {
  decltype(&avx512::data_grad_row) data_grad_row;
  decltype(&avx512::weight_grad_row) weight_grad_row;
  std::string_view name;
  std::int64_t out_multiple;  // which output channels must be a multiple of
};

Loops best_loops() {
  if (cpu_isa() == CpuIsa::avx512)
    return {avx512::data_grad_row, avx512::weight_grad_row, "eight channels, AVX-512", 32};
  return {avx2::data_grad_row, avx2::weight_grad_row, "eight channels, AVX2", 16};
}

void pack(const EightChannels& s, const float* weight, float* packed) {
  for (std::int64_t kh = 0; kh < 3; ++kh)
    for (std::int64_t o = 0; o < s.out; ++o)
      for (std::int64_t kw = 0; kw < 3; ++kw)
        for (std::int64_t c = 0; c < 8; ++c)
          // d_x[i] reads d_z[i + 1 - kh]; tap kh of the adjoint reads row i + kh - 1, so the kernel
          // is flipped.
          packed[(((2 - kh) * s.out / 2 + o / 2) * 3 + kw) * 16 + 2 * c + o % 2] =
              weight[((o * 3 + kh) * 3 + kw) * 8 + c];
}

}  // namespace

bool takes_eight_channels(const Conv& op, const Value& x, const Value& z) {
  return op.kernel == 3 && op.stride == 1 && op.padding == 1 && op.dilation == 1 &&
         op.groups == 1 && x.type.shape[3] == 8 && cpu_isa() >= CpuIsa::avx2 &&
         op.out % best_loops().out_multiple == 0 && x.layout.tag.empty() && z.layout.tag.empty();
}

std::unique_ptr<Kernel> eight_channels_data_grad(const EightChannels& s) {
  const Loops loops = best_loops();
  const auto run = [s, loops](const Buffers& b) {
    float* packed = as<float>(b.workspace);
    pack(s, as<float>(b.in[1]), packed);
    const std::int64_t row = s.width * s.out;
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < s.images * s.height; ++r) {
      const std::int64_t i = r % s.height;
      const float* d_z = as<float>(b.in[0]) + r * row;
      const float* rows[3] = {i > 0 ? d_z - row : nullptr, d_z,
                              i + 1 < s.height ? d_z + row : nullptr};
      loops.data_grad_row(s, rows, packed, as<float>(b.out[0]) + r * s.width * 8);
    }
  };
  return host_kernel(std::string(loops.name), run, idx(9 * s.out * 8) * sizeof(float));
}

std::unique_ptr<Kernel> eight_channels_weight_grad(const EightChannels& s, bool bias) {
  const Loops loops = best_loops();
  const int threads = omp_get_max_threads();
  const std::int64_t weights = 72 * s.out,
                     share = weights + s.out;  // sums per thread: d_weight, then d_bias
  const auto run = [=](const Buffers& b) {
    float* sums = as<float>(b.workspace);
    const std::int64_t rows = s.images * s.height;
    // Each thread has its own rows and sums, added up in order: equal thread counts give equal
    // bits.
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; ++t) {
      float* mine = sums + t * share;
      std::memset(mine, 0, idx(share) * sizeof(float));
      for (std::int64_t r = rows * t / threads; r < rows * (t + 1) / threads; ++r) {
        const float* d_z = as<float>(b.in[1]) + r * s.width * s.out;
        loops.weight_grad_row(s, as<float>(b.in[0]) + r * s.width * 8, d_z, r % s.height, mine);
        for (std::int64_t j = 0; bias && j < s.width; ++j)
          for (std::int64_t o = 0; o < s.out; ++o) mine[weights + o] += d_z[j * s.out + o];
      }
    }
    for (int t = 1; t < threads; ++t)
      for (std::int64_t k = 0; k < share; ++k) sums[k] += sums[t * share + k];
    for (std::int64_t o = 0; o < s.out; ++o)
      for (std::int64_t tap = 0; tap < 9; ++tap)
        for (std::int64_t c = 0; c < 8; ++c)
          as<float>(b.out[0])[(o * 9 + tap) * 8 + c] = sums[(tap * 8 + c) * s.out + o];
    if (bias) std::memcpy(b.out[1], sums + weights, idx(s.out) * sizeof(float));
  };
  return host_kernel(std::string(loops.name), run, idx(threads * share) * sizeof(float));
}

}  // namespace warpstep::cpu
