// A few thousand elements a step: bound by nothing. Sums over rows run in order on one thread, so
// that the loss has the same bits from any team.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/loss/targets.h"

namespace warpstep::cpu {
namespace {

float log_sum_exp(const float* row, std::int64_t classes) {
  const float largest = *std::max_element(row, row + classes);
  float sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - largest);
  return largest + std::log(sum);
}

std::int64_t counted(const std::int32_t* labels, std::int64_t rows) {
  return std::count_if(labels, labels + rows, [](std::int32_t label) { return label >= 0; });
}

bool hit(const float* row, std::int64_t classes, std::int32_t label) {
  return label >= 0 && std::max_element(row, row + classes) - row == label;
}

// The weighted mean of what `row` has for a row's targets.
float mean_of(const Targets& t, const float* row) {
  return t.pair < 0 ? row[t.label] : t.weight * row[t.label] + t.rest * row[t.pair];
}

// Of the one that class k has to be.
float share(const Targets& t, std::int64_t k) {
  return (k == t.label ? t.weight : 0) + (k == t.pair ? t.rest : 0);
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

// One row's negative log-likelihood, and its d_logits if asked for.
float row_loss(const float* row, std::int64_t classes, const Targets& t, float scale,
               float* d_row) {
  const float log_sum = log_sum_exp(row, classes);
  for (std::int64_t k = 0; d_row && k < classes; ++k)
    d_row[k] = t.label < 0 ? 0 : scale * (std::exp(row[k] - log_sum) - share(t, k));
  return t.label < 0 ? 0 : log_sum - mean_of(t, row);
}

}  // namespace

std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands& operands) {
  return host_kernel("loops", [e = Extent(operands)](const Buffers& b) {
    for_rows(e, [&](std::int64_t n) {
      const float* row = as<float>(b.in[0]) + n * e.classes;
      const float log_sum = log_sum_exp(row, e.classes);
      for (std::int64_t k = 0; k < e.classes; ++k)
        as<float>(b.out[0])[n * e.classes + k] = row[k] - log_sum;
    });
  });
}

std::unique_ptr<Kernel> bind(const LogSoftmaxGrad&, const Operands& operands) {
  return host_kernel("loops", [e = Extent(operands)](const Buffers& b) {
    for_rows(e, [&](std::int64_t n) {
      const float *d_y = as<float>(b.in[0]) + n * e.classes,
                  *y = as<float>(b.in[1]) + n * e.classes;
      float sum = 0;
      for (std::int64_t k = 0; k < e.classes; ++k) sum += d_y[k];
      for (std::int64_t k = 0; k < e.classes; ++k)
        as<float>(b.out[0])[n * e.classes + k] = d_y[k] - std::exp(y[k]) * sum;
    });
  });
}

std::unique_ptr<Kernel> bind(const Nll& op, const Operands& operands) {
  return host_kernel("loops", [op, e = Extent(operands)](const Buffers& b) {
    const auto* labels = as<std::int32_t>(b.in[1]);
    const auto* plans = op.mixed ? as<RowPlan>(b.in[2]) : nullptr;
    double sum = 0;
    for (std::int64_t n = 0; n < e.rows; ++n)
      if (labels[n] >= 0)
        sum -= static_cast<double>(
            mean_of(targets_of(labels, plans, n), as<float>(b.in[0]) + n * e.classes));
    *as<float>(b.out[0]) = static_cast<float>(
        sum / static_cast<double>(std::max<std::int64_t>(1, counted(labels, e.rows))));
  });
}

std::unique_ptr<Kernel> bind(const NllGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, rows = operands.in_shape(0)[0]](const Buffers& b) {
    const auto* labels = as<std::int32_t>(b.in[0]);
    float* d_x = as<float>(b.out[0]);
    std::fill_n(d_x, rows * op.classes, 0.0F);
    const float value = -1 / static_cast<float>(std::max<std::int64_t>(1, counted(labels, rows)));
    const auto* plans = op.mixed ? as<RowPlan>(b.in[1]) : nullptr;
    for (std::int64_t n = 0; n < rows; ++n) {
      const Targets t = targets_of(labels, plans, n);
      if (t.label >= 0) d_x[n * op.classes + t.label] = value * share(t, t.label);
      if (t.pair >= 0) d_x[n * op.classes + t.pair] = value * share(t, t.pair);
    }
  });
}

std::unique_ptr<Kernel> bind(const LossGrad& op, const Operands&) {
  return host_kernel("loss_grad", [op](const Buffers& b) {
    *as<float>(b.out[0]) = op.scaled ? as<StepState>(b.in[0])->loss_scale : 1;
  });
}

std::unique_ptr<Kernel> bind(const Top1&, const Operands& operands) {
  return host_kernel("loops", [e = Extent(operands)](const Buffers& b) {
    std::int32_t correct = 0;
    for (std::int64_t n = 0; n < e.rows; ++n)
      correct += hit(as<float>(b.in[0]) + n * e.classes, e.classes, as<std::int32_t>(b.in[1])[n]);
    *as<std::int32_t>(b.out[0]) = correct;
  });
}

std::unique_ptr<Kernel> bind(const SoftmaxXent& op, const Operands& operands) {
  const Extent e(operands);
  return host_kernel(
      "loops",
      [op, e](const Buffers& b) {
        const float* logits = as<float>(b.in[0]);
        const auto* labels = as<std::int32_t>(b.in[1]);
        const auto* plans = op.mixed ? as<RowPlan>(b.in[2]) : nullptr;
        auto* losses = as<float>(b.workspace);
        const double rows = static_cast<double>(std::max<std::int64_t>(1, counted(labels, e.rows)));
        const auto scale = static_cast<float>(1 / rows);
        for_rows(e, [&](std::int64_t n) {
          float* d_row = op.gradient ? as<float>(b.out[2]) + n * e.classes : nullptr;
          losses[n] = row_loss(logits + n * e.classes, e.classes, targets_of(labels, plans, n),
                               scale, d_row);
        });
        double sum = 0;
        std::int32_t correct = 0;
        for (std::int64_t n = 0; n < e.rows; ++n) {
          sum += static_cast<double>(losses[n]);
          correct += hit(logits + n * e.classes, e.classes, labels[n]);
        }
        *as<float>(b.out[0]) = static_cast<float>(sum / rows);
        *as<std::int32_t>(b.out[1]) = correct;
      },
      idx(e.rows) * sizeof(float));
}

}  // namespace warpstep::cpu
