// The losses on the CPU. Of images they are a few thousand elements per step, too few to matter; of
// text a row has up to 50,257 logits, so that softmax_xent, the fused form, is vector loops: three
// passes over a row in the cache, with label smoothing a fourth, and one exponential per logit.
// Sums over rows run in order on one thread, so that the loss has the same bits with any number of
// threads.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/floats.h"
#include "kernels/cpu/stored.h"
#include "kernels/loss/targets.h"

namespace warpstep::cpu {
namespace {

// The log of a row's sum of exponentials, in parts: added up, they lose the digits of large logits.
struct LogSum {
  float largest, rest;
};
LogSum log_sum_exp(const float* row, std::int64_t classes) {
  const float largest = *std::max_element(row, row + classes);
  float sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - largest);
  return {largest, std::log(sum)};
}

// The first of the largest, as std::max_element() finds it.
template <class T>
bool hit(const T* row, std::int64_t classes, std::int32_t label) {
  const auto below = [](T a, T b) { return as_float(a) < as_float(b); };
  return label >= 0 && std::max_element(row, row + classes, below) - row == label;
}

// A row as floats: itself, or copied to `copy`.
const float* floats_of(const float* row, std::int64_t, float*) {
  return row;
}
const float* floats_of(const Bf16* row, std::int64_t classes, float* copy) {
  convert_row(row, classes, copy);
  return copy;
}
// The floats that copies of all rows need.
template <class T>
std::int64_t copied_floats(std::int64_t rows, std::int64_t classes) {
  return std::is_same_v<T, float> ? 0 : rows * classes;
}
// From a thread's copy to the next thread's: no two write to the same line of a cache.
std::int64_t copies_apart(std::int64_t classes) {
  return (classes + 31) / 16 * 16;
}

// Rows and classes of the first input.
struct Extent {
  explicit Extent(const Operands& operands)
      : rows(operands.in_shape(0)[0]), classes(operands.in_shape(0).back()) {}
  std::int64_t rows, classes;
  int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
};

template <class Run>
void for_rows(const Extent& e, Run run) {
#pragma omp parallel for schedule(static) num_threads(e.threads) if (e.rows * e.classes > 16384)
  for (std::int64_t n = 0; n < e.rows; ++n) run(n);
}

WARPSTEP_LOOP float largest_loop(const float* row, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  float most[lanes];
  for (float& lane : most) lane = row[0];
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t k = 0; k < whole; k += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) most[l] = row[k + l] > most[l] ? row[k + l] : most[l];
  float largest = most[0];
  for (const float lane : most) largest = lane > largest ? lane : largest;
  for (std::int64_t k = whole; k < count; ++k) largest = row[k] > largest ? row[k] : largest;
  return largest;
}
const auto largest_of = vectorized<largest_loop>();

// y = exp(x - largest), which may take the place of x; returns its sum.
WARPSTEP_LOOP float exponentials_loop(const float* x, float largest, float* y, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  float sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t k = 0; k < whole; k += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) {
      y[k + l] = exp_within_range(x[k + l] - largest);
      sums[l] += y[k + l];
    }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  for (std::int64_t k = whole; k < count; ++k) sum += y[k] = exp_within_range(x[k] - largest);
  return sum;
}
const auto exponentials = vectorized<exponentials_loop>();

WARPSTEP_LOOP float sum_exponentials_loop(const float* x, float largest, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  float sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t k = 0; k < whole; k += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) sums[l] += exp_within_range(x[k + l] - largest);
  float sum = 0;
  for (const float lane : sums) sum += lane;
  for (std::int64_t k = whole; k < count; ++k) sum += exp_within_range(x[k] - largest);
  return sum;
}
const auto sum_exponentials = vectorized<sum_exponentials_loop>();

WARPSTEP_LOOP bool contains_loop(const float* x, float value, std::int64_t count) {
  int found = 0;
  for (std::int64_t k = 0; k < count; ++k) found |= x[k] == value ? 1 : 0;
  return found != 0;
}
const auto contains = vectorized<contains_loop>();

WARPSTEP_LOOP void scale_exponentials_loop(float* y, float factor, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) y[k] *= factor;
}
const auto scale_row = vectorized<scale_exponentials_loop>();

// Of a loss with smoothing, which wants every class a little. Without weights these are all 1.
template <bool weighted>
WARPSTEP_LOOP double sum_below_loop(const float* x, const float* weights, float largest,
                                    std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  double sums[lanes] = {};
  const auto term = [&](std::int64_t k) __attribute__((always_inline)) {
    return static_cast<double>(weighted ? weights[k] * (x[k] - largest) : x[k] - largest);
  };
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t k = 0; k < whole; k += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) sums[l] += term(k + l);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t k = whole; k < count; ++k) sum += term(k);
  return sum;
}
template <bool weighted>
const auto sum_below = vectorized<sum_below_loop<weighted>>();

// y = factor * y - weights * spread
template <bool weighted>
WARPSTEP_LOOP void scale_smoothed_loop(float* y, float factor, const float* weights, float spread,
                                       std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k)
    y[k] = y[k] * factor - (weighted ? weights[k] * spread : spread);
}
template <bool weighted>
const auto scale_smoothed = vectorized<scale_smoothed_loop<weighted>>();

// What a row of softmax_xent adds to the batch.
struct RowScore {
  float loss = 0;
  bool hit = false;
};

// What all rows of a call share.
struct BatchLoss {
  const Criterion<float>& criterion;
  std::int64_t classes;
  float scale;  // of the gradient
  double weights = criterion.is_smooth() ? criterion.sum_of_weights() : 0;

  double sum_below_largest(const float* row, float largest) const {
    if (!criterion.is_smooth()) return 0;
    const auto sum = criterion.weights() ? sum_below<true> : sum_below<false>;
    return sum(row, criterion.weights(), largest, classes);
  }
  void finish_gradient(const Targets& t, float factor, float* d_row) const;
};

// From exponentials, which `factor` makes what the row's loss takes from the logits.
void BatchLoss::finish_gradient(const Targets& t, float factor, float* d_row) const {
  if (criterion.is_smooth()) {
    const auto finish = criterion.weights() ? scale_smoothed<true> : scale_smoothed<false>;
    finish(d_row, factor, criterion.weights(), scale * criterion.spread(), classes);
  } else {
    scale_row(d_row, factor, classes);
  }
  d_row[t.label] -= scale * criterion.wanted_as_label(t, t.label);
  if (t.pair >= 0 && t.pair != t.label)
    d_row[t.pair] -= scale * criterion.wanted_as_label(t, t.pair);
}

// Writes the row's d_logits unless that is null; it may be `row` itself.
RowScore score_row(const BatchLoss& batch, const float* row, const Targets& t, float* d_row) {
  const std::int64_t classes = batch.classes;
  if (t.label < 0) {
    if (d_row) std::fill_n(d_row, classes, 0.0F);
    return {};
  }
  const float largest = largest_of(row, classes), own = row[t.label];
  const float total = batch.criterion.total(t, batch.weights);
  const float wanted = batch.criterion.of(t, row, largest, batch.sum_below_largest(row, largest));
  // The first of the largest logits. A NaN is none of them, but at class 0 nothing exceeds it.
  const bool is_hit = t.label == 0 ? own == largest || std::isnan(own)
                                   : own == largest && !contains(row, largest, t.label);
  const float sum =
      d_row ? exponentials(row, largest, d_row, classes) : sum_exponentials(row, largest, classes);
  if (d_row) batch.finish_gradient(t, batch.scale * total / sum, d_row);
  return {total * std::log(sum) - wanted, is_hit};
}

template <class T>  // of the logits
std::unique_ptr<Kernel> log_softmax_kernel(const Extent& e) {
  return host_kernel(
      "loops",
      [e](const Buffers& b) {
        for_rows(e, [&](std::int64_t n) {
          const float* row = floats_of(as<T>(b.in[0]) + n * e.classes, e.classes,
                                       as<float>(b.workspace) + n * e.classes);
          const auto [largest, rest] = log_sum_exp(row, e.classes);
          for (std::int64_t k = 0; k < e.classes; ++k)
            as<float>(b.out[0])[n * e.classes + k] = (row[k] - largest) - rest;
        });
      },
      idx(copied_floats<T>(e.rows, e.classes)) * sizeof(float));
}

template <class T>  // of d_x
std::unique_ptr<Kernel> log_softmax_grad_kernel(const Extent& e) {
  return host_kernel("loops", [e](const Buffers& b) {
    for_rows(e, [&](std::int64_t n) {
      const float *d_y = as<float>(b.in[0]) + n * e.classes,
                  *y = as<float>(b.in[1]) + n * e.classes;
      float sum = 0;
      for (std::int64_t k = 0; k < e.classes; ++k) sum += d_y[k];
      for (std::int64_t k = 0; k < e.classes; ++k)
        as<T>(b.out[0])[n * e.classes + k] = rounded_to<T>(d_y[k] - std::exp(y[k]) * sum);
    });
  });
}

template <class T>  // of what is measured
std::unique_ptr<Kernel> nll_kernel(const Nll& op, const Extent& e) {
  return host_kernel(
      "loops",
      [op, e](const Buffers& b) {
        const auto* labels = as<std::int32_t>(b.in[1]);
        const auto criterion = criterion_of<float>(op, b.in, 1, e.classes);
        double sum = 0;
        for (std::int64_t n = 0; n < e.rows; ++n)
          if (labels[n] >= 0)
            sum -= static_cast<double>(criterion.of(
                criterion.targets(labels, n),
                floats_of(as<T>(b.in[0]) + n * e.classes, e.classes, as<float>(b.workspace))));
        const double mean = criterion.mean(labels, e.rows);
        *as<float>(b.out[0]) = static_cast<float>(mean == 0 ? sum : sum * mean);
      },
      idx(copied_floats<T>(1, e.classes)) * sizeof(float));
}

template <class T>  // of d_x
std::unique_ptr<Kernel> nll_grad_kernel(const NllGrad& op, std::int64_t rows) {
  return host_kernel("loops", [op, rows](const Buffers& b) {
    const auto* labels = as<std::int32_t>(b.in[0]);
    const auto criterion = criterion_of<float>(op, b.in, 0, op.classes);
    const auto scale = static_cast<float>(criterion.mean(labels, rows));
    for (std::int64_t n = 0; n < rows; ++n) {
      T* row = as<T>(b.out[0]) + n * op.classes;
      const Targets t = criterion.targets(labels, n);
      const auto set = [&](std::int64_t k) {
        row[k] = rounded_to<T>(-scale * criterion.wanted(t, k));
      };
      std::fill_n(row, op.classes, T{});
      if (t.label < 0) continue;
      if (op.smoothing != 0)
        for (std::int64_t k = 0; k < op.classes; ++k) set(k);
      set(t.label);
      if (t.pair >= 0) set(t.pair);
    }
  });
}

// bf16 rows are computed as floats, in a row of each thread's own.
template <class T>  // of the logits and their gradient
std::unique_ptr<Kernel> cross_entropy_kernel(const SoftmaxXent& op, const Extent& e) {
  const std::int64_t copied = copied_floats<T>(e.threads, copies_apart(e.classes));
  return host_kernel(
      "vector loops",
      [op, e](const Buffers& b) {
        const auto* labels = as<std::int32_t>(b.in[1]);
        const auto criterion = criterion_of<float>(op, b.in, 1, e.classes);
        auto* scores = as<RowScore>(b.workspace);
        auto* copies = reinterpret_cast<float*>(scores + e.rows);
        const double mean = criterion.mean(labels, e.rows);
        const BatchLoss batch{criterion, e.classes, static_cast<float>(mean)};
        for_rows(e, [&](std::int64_t n) {
          const T* logits = as<T>(b.in[0]) + n * e.classes;
          T* d_logits = op.gradient ? as<T>(b.out[2]) + n * e.classes : nullptr;
          const Targets targets = criterion.targets(labels, n);
          if constexpr (std::is_same_v<T, float>) {
            scores[n] = score_row(batch, logits, targets, d_logits);
          } else {
            float* row = copies + omp_get_thread_num() * copies_apart(e.classes);
            convert_row(logits, e.classes, row);
            scores[n] = score_row(batch, row, targets, d_logits ? row : nullptr);
            if (d_logits) convert_row(row, e.classes, d_logits);
          }
        });
        double sum = 0;
        std::int32_t correct = 0;
        for (std::int64_t n = 0; n < e.rows; ++n) {
          sum += static_cast<double>(scores[n].loss);
          correct += scores[n].hit;
        }
        *as<float>(b.out[0]) = static_cast<float>(mean == 0 ? sum : sum * mean);
        *as<std::int32_t>(b.out[1]) = correct;
      },
      idx(e.rows) * sizeof(RowScore) + idx(copied) * sizeof(float));
}

}  // namespace

std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands& operands) {
  return with_stored(operands.in(0).type.dtype,
                     [&]<class T>() { return log_softmax_kernel<T>(Extent(operands)); });
}

std::unique_ptr<Kernel> bind(const LogSoftmaxGrad& op, const Operands& operands) {
  return with_stored(op.dtype,
                     [&]<class T>() { return log_softmax_grad_kernel<T>(Extent(operands)); });
}

std::unique_ptr<Kernel> bind(const Nll& op, const Operands& operands) {
  return with_stored(operands.in(0).type.dtype,
                     [&]<class T>() { return nll_kernel<T>(op, Extent(operands)); });
}

std::unique_ptr<Kernel> bind(const NllGrad& op, const Operands& operands) {
  return with_stored(op.dtype,
                     [&]<class T>() { return nll_grad_kernel<T>(op, operands.in_shape(0)[0]); });
}

std::unique_ptr<Kernel> bind(const LossGrad& op, const Operands&) {
  return host_kernel("loss_grad", [op](const Buffers& b) {
    *as<float>(b.out[0]) = op.scaled ? as<StepState>(b.in[0])->loss_scale : 1;
  });
}

std::unique_ptr<Kernel> bind(const Top1&, const Operands& operands) {
  return with_stored(operands.in(0).type.dtype, [e = Extent(operands)]<class T>() {
    return host_kernel("loops", [e](const Buffers& b) {
      std::int32_t correct = 0;
      for (std::int64_t n = 0; n < e.rows; ++n)
        correct += hit(as<T>(b.in[0]) + n * e.classes, e.classes, as<std::int32_t>(b.in[1])[n]);
      *as<std::int32_t>(b.out[0]) = correct;
    });
  });
}

std::unique_ptr<Kernel> bind(const SoftmaxXent& op, const Operands& operands) {
  return with_stored(operands.in(0).type.dtype,
                     [&]<class T>() { return cross_entropy_kernel<T>(op, Extent(operands)); });
}

}  // namespace warpstep::cpu
