// The losses in double.
#include <algorithm>
#include <cmath>

#include "kernels/loss/targets.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

double log_sum_exp(const double* row, std::int64_t classes) {
  const double largest = *std::max_element(row, row + classes);
  double sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - largest);
  return largest + std::log(sum);
}

double loss_scale(const void* state) {
  return static_cast<double>(static_cast<const StepState*>(state)->loss_scale);
}

std::int32_t top1(const double* logits, const std::int32_t* labels, std::int64_t rows,
                  std::int64_t classes) {
  std::int32_t correct = 0;
  for (std::int64_t n = 0; n < rows; ++n) {
    const double* row = logits + n * classes;
    correct += labels[n] >= 0 && std::max_element(row, row + classes) - row == labels[n];
  }
  return correct;
}

}  // namespace

std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands& operands) {
  return host_kernel("loops", [rows = operands.in_shape(0)[0],
                               classes = operands.in_shape(0)[1]](const Buffers& b) {
    for (std::int64_t n = 0; n < rows; ++n) {
      const double* row = as<double>(b.in[0]) + n * classes;
      const double log_sum = log_sum_exp(row, classes);
      for (std::int64_t k = 0; k < classes; ++k)
        as<double>(b.out[0])[n * classes + k] = row[k] - log_sum;
    }
  });
}

std::unique_ptr<Kernel> bind(const LogSoftmaxGrad&, const Operands& operands) {
  return host_kernel("loops", [rows = operands.in_shape(0)[0],
                               classes = operands.in_shape(0)[1]](const Buffers& b) {
    for (std::int64_t n = 0; n < rows; ++n) {
      const double *d_y = as<double>(b.in[0]) + n * classes, *y = as<double>(b.in[1]) + n * classes;
      double sum = 0;
      for (std::int64_t k = 0; k < classes; ++k) sum += d_y[k];
      for (std::int64_t k = 0; k < classes; ++k)
        as<double>(b.out[0])[n * classes + k] = d_y[k] - std::exp(y[k]) * sum;
    }
  });
}

std::unique_ptr<Kernel> bind(const Nll& op, const Operands& operands) {
  return host_kernel("loops", [op, rows = operands.in_shape(0)[0],
                               classes = operands.in_shape(0)[1]](const Buffers& b) {
    const auto* labels = as<std::int32_t>(b.in[1]);
    const auto criterion = criterion_of<double>(op, b.in, 1, classes);
    double sum = 0;
    for (std::int64_t n = 0; n < rows; ++n)
      if (labels[n] >= 0)
        sum -= criterion.of(criterion.targets(labels, n), as<double>(b.in[0]) + n * classes);
    const double mean = criterion.mean(labels, rows);
    *as<double>(b.out[0]) = mean == 0 ? sum : sum * mean;
  });
}

std::unique_ptr<Kernel> bind(const NllGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, rows = operands.in_shape(0)[0]](const Buffers& b) {
    const auto* labels = as<std::int32_t>(b.in[0]);
    const auto criterion = criterion_of<double>(op, b.in, 0, op.classes);
    const double scale = criterion.mean(labels, rows) * (op.scaled ? loss_scale(b.in.back()) : 1);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = 0; k < op.classes; ++k)
        as<double>(b.out[0])[n * op.classes + k] =
            labels[n] < 0 ? 0 : -scale * criterion.wanted(criterion.targets(labels, n), k);
  });
}

std::unique_ptr<Kernel> bind(const LossGrad& op, const Operands&) {
  return host_kernel("loss_grad", [op](const Buffers& b) {
    *as<double>(b.out[0]) = op.scaled ? loss_scale(b.in[0]) : 1;
  });
}

std::unique_ptr<Kernel> bind(const Top1&, const Operands& operands) {
  return host_kernel("loops", [rows = operands.in_shape(0)[0],
                               classes = operands.in_shape(0)[1]](const Buffers& b) {
    *as<std::int32_t>(b.out[0]) =
        top1(as<double>(b.in[0]), as<std::int32_t>(b.in[1]), rows, classes);
  });
}

std::unique_ptr<Kernel> bind(const SoftmaxXent& op, const Operands& operands) {
  return host_kernel("loops", [op, rows = operands.in_shape(0)[0],
                               classes = operands.in_shape(0)[1]](const Buffers& b) {
    const double* logits = as<double>(b.in[0]);
    const auto* labels = as<std::int32_t>(b.in[1]);
    const auto criterion = criterion_of<double>(op, b.in, 1, classes);
    const double mean = criterion.mean(labels, rows), weights = criterion.sum_of_weights();
    const double d_scale = op.scaled ? mean * loss_scale(b.in.back()) : mean;
    const std::int32_t correct = top1(logits, labels, rows, classes);  // d_logits may replace them
    double sum = 0;
    for (std::int64_t n = 0; n < rows; ++n) {
      const double* row = logits + n * classes;
      const double log_sum = log_sum_exp(row, classes);
      const Targets of = criterion.targets(labels, n);
      const double total = labels[n] < 0 ? 0 : criterion.total(of, weights);
      if (labels[n] >= 0) sum += total * log_sum - criterion.of(of, row);
      for (std::int64_t k = 0; op.gradient && k < classes; ++k)
        as<double>(b.out[2])[n * classes + k] =
            labels[n] < 0
                ? 0
                : d_scale * (total * std::exp(row[k] - log_sum) - criterion.wanted(of, k));
    }
    *as<double>(b.out[0]) = mean == 0 ? sum : sum * mean;
    *as<std::int32_t>(b.out[1]) = correct;
  });
}

}  // namespace warpstep::ref
