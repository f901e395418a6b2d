// Decoding on the CPU. Of a token, bound by memory: the attention reads the keys and values of the
// positions so far once, 8 bytes per position and channel: at position 1000 of GPT-2 small 6 MB per
// layer, where the layer's weights are 28 MB. The tokens of a prompt share what they read, in the
// strips of attention/attention.cpu.cpp, and are bound by arithmetic.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention/attention.cpu.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/floats.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/decode/cached_rows.h"

namespace warpstep::cpu {
namespace {

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

// to = x times the scale, of a head's queries.
template <class T>
WARPSTEP_LOOP void scale_query_loop(const T* x, float scale, float* to, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) to[d] = as_float(x[d]) * scale;
}
template <class T>
const auto scale_query = vectorized<scale_query_loop<T>>();

// A head of a sequence's rows: the first of them is at q, o and `position`.
struct CachedTask {
  std::int64_t position;
  const float *keys, *values;
};

// A row at a time; `scratch` has 2 D + P floats.
template <class T>
void attend_cached(const CachedRows& rows, const CachedTask& task, const T* q, T* o,
                   float* scratch) {
  float *query = scratch, *sums = query + rows.features, *s = sums + rows.features;
  for (std::int64_t t = 0; t < rows.length; ++t) {
    const std::int64_t visible = task.position + t + 1;
    convert_row(q + t * 3 * rows.channels(), rows.features, query);
    cached_scores(query, {task.keys, rows.row(), visible, rows.features},
                  static_cast<float>(rows.scale()), s);
    const float sum = cached_exponentials(s, visible);
    cached_values(s, {task.values, rows.row(), visible, rows.features}, sums);
    divide_sums<T>(sums, sum, o + t * rows.channels(), rows.features);
  }
}

// All rows together; `scratch` has 2 T D floats and those of `attention`.
template <class T>
void attend_together(const CachedRows& rows, const ContinuedAttention& attention,
                     const CachedTask& task, const T* q, T* o, float* scratch) {
  float *queries = scratch + attention.floats(), *sums = queries + rows.length * rows.features;
  for (std::int64_t t = 0; t < rows.length; ++t)
    scale_query<T>(q + t * 3 * rows.channels(), static_cast<float>(rows.scale()),
                   queries + t * rows.features, rows.features);
  attention.run(queries, task.position, task.keys, task.values, sums, scratch);
  for (std::int64_t t = 0; t < rows.length; ++t)
    divide_sums<T>(sums + t * rows.features, 1, o + t * rows.channels(), rows.features);
}

template <class T>
std::unique_ptr<Kernel> attention_kernel_at(const CachedRows& rows) {
  constexpr std::int64_t few_rows = 4;
  std::shared_ptr<const ContinuedAttention> together;
  std::int64_t floats = 2 * rows.features + rows.positions;
  if (rows.length >= few_rows) {
    together = std::make_shared<ContinuedAttention>(rows.length, rows.features, rows.row());
    floats = together->floats() + (2 * rows.length * rows.features + 15) / 16 * 16;
  }
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  return host_kernel(
      together ? together->implementation() : "vector loops",
      [rows, floats, threads, together](const Buffers& b) {
        const std::int64_t position = *as<std::int32_t>(b.in[2]), channels = rows.channels();
        const T* qkv = as<T>(b.in[0]);
        float* cache = as<float>(b.in[1]);
        for (std::int64_t n = 0; n < rows.count; ++n)
          convert_row(qkv + n * 3 * channels + channels, rows.row(),
                      cache + rows.offset(n, position));
        const std::int64_t tasks = rows.count / rows.length * rows.heads;
        constexpr std::int64_t small = 1 << 15;  // multiply-adds, some 5 us
        const bool large =
            rows.count * rows.heads * (position + rows.length) * rows.features > small;
#pragma omp parallel for schedule(static) num_threads(threads) if (large)
        for (std::int64_t i = 0; i < tasks; ++i) {
          const std::int64_t n = i / rows.heads * rows.length,
                             begin = i % rows.heads * rows.features;
          const float* keys = cache + rows.sequence_offset(n) + begin;
          const CachedTask task{position, keys, keys + channels};
          const T* q = qkv + n * 3 * channels + begin;
          T* o = as<T>(b.out[0]) + n * channels + begin;
          float* scratch = as<float>(b.workspace) + omp_get_thread_num() * floats;
          if (together)
            attend_together(rows, *together, task, q, o, scratch);
          else
            attend_cached(rows, task, q, o, scratch);
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
        add_row(as<T>(b.in[2]) + as<std::int32_t>(b.in[0])[n] * width,
                as<T>(b.in[3]) + (position + n % op.sequence) * width, width,
                as<T>(b.out[0]) + n * width);
    });
  });
}

std::unique_ptr<Kernel> bind(const CachedAttention& op, const Operands& operands) {
  const CachedRows rows(op, operands.in_shape(0), operands.in_shape(1));
  return with_stored(operands.out().type.dtype,
                     [&]<class T>() { return attention_kernel_at<T>(rows); });
}

}  // namespace warpstep::cpu
