// The losses on the CPU: a few thousand elements per step, too few to matter. Sums over rows run in
// order on one thread, so that the loss has the same bits with any number of threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/loss/targets.h"

namespace warpstep::cpu {
namespace {

float log_sum_exp(const float* row, std::int64_t classes) {
  const float largest = *std::max_element(row, row + classes);
  float sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - largest);
  return largest + std::log(sum);
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
  for (std::int64_t k = 0; k < classes; ++k) copy[k] = as_float(row[k]);
  return copy;
}
// The floats that copies of all rows need.
template <class T>
std::int64_t copied_floats(std::int64_t rows, std::int64_t classes) {
  return std::is_same_v<T, float> ? 0 : rows * classes;
}

// Rows and classes of the first input.
struct Extent {
  explicit Extent(const Operands& operands)
      : rows(operands.in_shape(0)[0]), classes(operands.in_shape(0).back()) {}
  std::int64_t rows, classes;
};

template <class Run>
void for_rows(const Extent& e, Run run) {
#pragma omp parallel for schedule(static) if (e.rows * e.classes > 16384)
  for (std::int64_t n = 0; n < e.rows; ++n) run(n);
}

// One row's loss, and its d_logits unless that is null.
template <class T>
float row_loss(const Criterion<float>& criterion, const float* row, std::int64_t classes,
               const Targets& t, float scale, T* d_row) {
  if (t.label < 0) {
    if (d_row) std::fill_n(d_row, classes, T{});
    return 0;
  }
  const float log_sum = log_sum_exp(row, classes), total = criterion.total(t);
  for (std::int64_t k = 0; d_row && k < classes; ++k)
    d_row[k] = rounded_to<T>(scale * (total * std::exp(row[k] - log_sum) - criterion.wanted(t, k)));
  return total * log_sum - criterion.of(t, row);
}

template <class T>  // of the logits
std::unique_ptr<Kernel> log_softmax_kernel(const Extent& e) {
  return host_kernel(
      "loops",
      [e](const Buffers& b) {
        for_rows(e, [&](std::int64_t n) {
          const float* row = floats_of(as<T>(b.in[0]) + n * e.classes, e.classes,
                                       as<float>(b.workspace) + n * e.classes);
          const float log_sum = log_sum_exp(row, e.classes);
          for (std::int64_t k = 0; k < e.classes; ++k)
            as<float>(b.out[0])[n * e.classes + k] = row[k] - log_sum;
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
        *as<float>(b.out[0]) = static_cast<float>(mean == 0 ? 0 : sum * mean);
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

template <class T>  // of the logits and their gradient
std::unique_ptr<Kernel> cross_entropy_kernel(const SoftmaxXent& op, const Extent& e) {
  return host_kernel(
      "loops",
      [op, e](const Buffers& b) {
        const T* logits = as<T>(b.in[0]);
        const auto* labels = as<std::int32_t>(b.in[1]);
        const auto criterion = criterion_of<float>(op, b.in, 1, e.classes);
        auto *losses = as<float>(b.workspace), *copies = losses + e.rows;
        const double mean = criterion.mean(labels, e.rows);
        for_rows(e, [&](std::int64_t n) {
          T* d_row = op.gradient ? as<T>(b.out[2]) + n * e.classes : nullptr;
          losses[n] = row_loss(
              criterion, floats_of(logits + n * e.classes, e.classes, copies + n * e.classes),
              e.classes, criterion.targets(labels, n), static_cast<float>(mean), d_row);
        });
        double sum = 0;
        std::int32_t correct = 0;
        for (std::int64_t n = 0; n < e.rows; ++n) {
          sum += static_cast<double>(losses[n]);
          correct += hit(logits + n * e.classes, e.classes, labels[n]);
        }
        *as<float>(b.out[0]) = static_cast<float>(mean == 0 ? 0 : sum * mean);
        *as<std::int32_t>(b.out[1]) = correct;
      },
      idx(e.rows + copied_floats<T>(e.rows, e.classes)) * sizeof(float));
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
