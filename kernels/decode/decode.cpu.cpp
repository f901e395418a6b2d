// Decoding on the CPU. Bound by memory: the attention reads the keys and values of the positions so
// far once, 8 bytes per position and channel: at position 1000 of GPT-2 small 6 MB per layer, where
// the layer's weights are 28 MB.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/decode/cached_rows.h"

namespace warpstep::cpu {
namespace {

template <class T>
WARPSTEP_LOOP void embed_at_loop(const T* token, const T* position, T* x, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c)
    x[c] = rounded_to<T>(as_float(token[c]) + as_float(position[c]));
}
template <class T>
const auto embed_at_row = vectorized<embed_at_loop<T>>();

// For the cache and the sums, which are f32.
template <class T>
WARPSTEP_LOOP void widened_floats_loop(const T* from, float* to, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) to[c] = as_float(from[c]);
}
template <class T>
const auto widened_floats = vectorized<widened_floats_loop<T>>();

constexpr std::int64_t lanes_of_sums = 16;  // of every instruction set, so that all give equal bits

// Rows of keys or values of one head: row j begins at first + j * pitch.
struct CachedHead {
  const float* first;
  std::int64_t pitch, count, features;
};

// s[j] = scale * (q, key j).
WARPSTEP_LOOP void cached_scores_loop(const float* q, CachedHead keys, float scale, float* s) {
  for (std::int64_t j = 0; j < keys.count; ++j) {
    const float* k = keys.first + j * keys.pitch;
    float lanes[lanes_of_sums] = {};
    std::int64_t d = 0;
    for (; d + lanes_of_sums <= keys.features; d += lanes_of_sums)
      for (std::int64_t l = 0; l < lanes_of_sums; ++l) lanes[l] += q[d + l] * k[d + l];
    float sum = 0;
    for (; d < keys.features; ++d) sum += q[d] * k[d];
    for (const float lane : lanes) sum += lane;
    s[j] = sum * scale;
  }
}
const auto cached_scores = vectorized<cached_scores_loop>();

// s becomes exp(s - the largest); returns the sum of these.
WARPSTEP_LOOP float cached_exponentials_loop(float* s, std::int64_t count) {
  float largest = s[0];
  for (std::int64_t j = 1; j < count; ++j) largest = s[j] > largest ? s[j] : largest;
  for (std::int64_t j = 0; j < count; ++j) {
    const float x = s[j] - largest;
    s[j] = x < -87.0F ? 0.0F : exp_within_range(x);
  }
  float lanes[lanes_of_sums] = {};
  std::int64_t j = 0;
  for (; j + lanes_of_sums <= count; j += lanes_of_sums)
    for (std::int64_t l = 0; l < lanes_of_sums; ++l) lanes[l] += s[j + l];
  float sum = 0;
  for (; j < count; ++j) sum += s[j];
  for (const float lane : lanes) sum += lane;
  return sum;
}
const auto cached_exponentials = vectorized<cached_exponentials_loop>();

// o = the sum of p[j] * value j; four at a time, as o is loaded and stored for each of them
// otherwise.
WARPSTEP_LOOP void cached_values_loop(const float* p, CachedHead values, float* o) {
  for (std::int64_t d = 0; d < values.features; ++d) o[d] = 0;
  std::int64_t j = 0;
  for (; j + 4 <= values.count; j += 4) {
    const float *a = values.first + j * values.pitch, *b = a + values.pitch, *c = b + values.pitch,
                *e = c + values.pitch;
#pragma omp simd
    for (std::int64_t d = 0; d < values.features; ++d)
      o[d] = (((o[d] + p[j] * a[d]) + p[j + 1] * b[d]) + p[j + 2] * c[d]) + p[j + 3] * e[d];
  }
  for (; j < values.count; ++j) {
    const float* v = values.first + j * values.pitch;
#pragma omp simd
    for (std::int64_t d = 0; d < values.features; ++d) o[d] += p[j] * v[d];
  }
}
const auto cached_values = vectorized<cached_values_loop>();

template <class T>
WARPSTEP_LOOP void divide_sums_loop(const float* sums, float divisor, T* o, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) o[d] = rounded_to<T>(sums[d] / divisor);
}
template <class T>
const auto divide_sums = vectorized<divide_sums_loop<T>>();

// A head of one row; `scratch` has 2 D + P floats.
template <class T>
void attend_cached(const CachedRows& rows, const T* q, const float* keys, std::int64_t visible,
                   T* o, float* scratch) {
  float *query = scratch, *sums = query + rows.features, *s = sums + rows.features;
  widened_floats<T>(q, query, rows.features);
  cached_scores(query, {keys, rows.row(), visible, rows.features}, static_cast<float>(rows.scale()),
                s);
  const float sum = cached_exponentials(s, visible);
  cached_values(s, {keys + rows.channels(), rows.row(), visible, rows.features}, sums);
  divide_sums<T>(sums, sum, o, rows.features);
}

template <class T>
std::unique_ptr<Kernel> attention_kernel_at(const CachedRows& rows) {
  const std::int64_t floats = 2 * rows.features + rows.positions;
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  return host_kernel(
      "vector loops",
      [rows, floats, threads](const Buffers& b) {
        const std::int64_t position = *as<std::int32_t>(b.in[2]), channels = rows.channels();
        const T* qkv = as<T>(b.in[0]);
        float* cache = as<float>(b.in[1]);
        for (std::int64_t n = 0; n < rows.count; ++n)
          widened_floats<T>(qkv + n * 3 * channels + channels, cache + rows.offset(n, position),
                            rows.row());
        const std::int64_t tasks = rows.count * rows.heads;
        constexpr std::int64_t small = 1 << 15;  // multiply-adds, some 5 us
        const bool large = tasks * position * rows.features > small;
#pragma omp parallel for schedule(static) num_threads(threads) if (large)
        for (std::int64_t task = 0; task < tasks; ++task) {
          const std::int64_t n = task / rows.heads, begin = task % rows.heads * rows.features;
          attend_cached<T>(rows, qkv + n * 3 * channels + begin,
                           cache + rows.sequence_offset(n) + begin, position + n % rows.length + 1,
                           as<T>(b.out[0]) + n * channels + begin,
                           as<float>(b.workspace) + omp_get_thread_num() * floats);
        }
      },
      idx(threads * floats) * sizeof(float));
}

}  // namespace

std::unique_ptr<Kernel> bind(const EmbedAt& op, const Operands& operands) {
  const std::int64_t tokens = operands.out_shape()[0], width = operands.out_shape()[1];
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel("vector loops", [op, tokens, width](const Buffers& b) {
      const std::int64_t position = *as<std::int32_t>(b.in[1]);
      for (std::int64_t n = 0; n < tokens; ++n)
        embed_at_row<T>(as<T>(b.in[2]) + as<std::int32_t>(b.in[0])[n] * width,
                        as<T>(b.in[3]) + (position + n % op.sequence) * width,
                        as<T>(b.out[0]) + n * width, width);
    });
  });
}

std::unique_ptr<Kernel> bind(const CachedAttention& op, const Operands& operands) {
  const CachedRows rows(op, operands.in_shape(0), operands.in_shape(1));
  return with_stored(operands.out().type.dtype,
                     [&]<class T>() { return attention_kernel_at<T>(rows); });
}

}  // namespace warpstep::cpu
