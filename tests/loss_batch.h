// Batches for tests of the CUDA losses, and their expected results.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/loss/loss.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda::testing {

using Labels = std::vector<std::int32_t>;

// Logits with NaN after the classes: kernels must not read them as values.
struct Batch {
  Batch(DType type, std::size_t rows, std::size_t classes, float scale, unsigned seed)
      : dtype(type), logits(make(type, rows, classes, scale, seed)) {
    const auto width = static_cast<std::int64_t>(16 / size_bytes(type));
    shape.rows = static_cast<std::int64_t>(rows);
    shape.classes = static_cast<std::int64_t>(classes);
    shape.pitch = (shape.classes + width - 1) / width * width;
    shape.log_pitch = shape.classes + 3;
    for (std::size_t r = 0; r < rows; ++r)
      labels.push_back(static_cast<std::int32_t>((r * 7 + 3) % classes));
  }
  static std::vector<float> make(DType type, std::size_t rows, std::size_t classes, float scale,
                                 unsigned seed) {
    const std::size_t width = 16 / size_bytes(type), pitch = (classes + width - 1) / width * width;
    std::vector<float> x = random_values(rows * pitch, scale, seed);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % pitch >= classes) x[i] = std::numeric_limits<float>::quiet_NaN();
    return x;
  }
  // Of three rows one is mixed with its own class, one with another, one is not mixed.
  void mix() {
    for (std::size_t r = 0; r < rows(); ++r)
      plans.push_back({.weight = r % 3 == 2 ? 1 : 0.3F + 0.1F * static_cast<float>(r % 5),
                       .pair_label = r % 3 == 0 ? std::max(labels[r], 0)
                                                : static_cast<std::int32_t>(r * 5 % classes())});
    if (!plans.empty()) plans[0] = {.weight = 0.5F};  // a pair without a label
  }
  const RowPlan* rows_of(const Array<RowPlan>& on_device) const {
    return plans.empty() ? nullptr : on_device.data();
  }
  std::size_t rows() const { return idx(shape.rows); }
  std::size_t classes() const { return idx(shape.classes); }
  // Rows of only the classes, as rounded.
  std::vector<float> stored() const {
    const std::vector<float> all = Floats(dtype, logits).values();
    std::vector<float> x;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % idx(shape.pitch) < classes()) x.push_back(all[i]);
    return x;
  }

  DType dtype;
  RowsShape shape;
  std::vector<float> logits;
  Labels labels;
  std::vector<RowPlan> plans;  // of mixed rows
};

// loss, top-1, counted rows and d_logits in double.
struct Expected {
  double loss = 0, counted = 0;
  int correct = 0;
  std::vector<double> log_p, d_logits;
};

inline Expected expected_of(const Batch& b, double loss_scale) {
  Expected e;
  e.counted = static_cast<double>(std::count_if(b.labels.begin(), b.labels.end(),
                                                [](std::int32_t label) { return label >= 0; }));
  const double mean = 1 / std::max(1.0, e.counted);
  const std::vector<float> x = b.stored();
  for (std::size_t r = 0; r < b.rows(); ++r) {
    const float* row = x.data() + r * b.classes();
    const float* top = std::max_element(row, row + b.classes());
    double sum = 0;
    for (std::size_t k = 0; k < b.classes(); ++k)
      sum += std::exp(static_cast<double>(row[k]) - static_cast<double>(*top));
    const std::int32_t label = b.labels[r];
    const RowPlan plan = b.plans.empty() ? RowPlan{} : b.plans[r];
    const bool mixed = plan.weight < 1 && plan.pair_label >= 0;
    const double weight = mixed ? static_cast<double>(plan.weight) : 1;
    for (std::size_t k = 0; k < b.classes(); ++k) {
      const double log_p = static_cast<double>(row[k]) - static_cast<double>(*top) - std::log(sum);
      e.log_p.push_back(log_p);
      const auto of = static_cast<std::int32_t>(k);
      const double hot =
          (of == label ? weight : 0) + (mixed && of == plan.pair_label ? 1 - weight : 0);
      e.d_logits.push_back(label < 0 ? 0 : loss_scale * mean * (std::exp(log_p) - hot));
      if (label >= 0 && hot > 0) e.loss -= mean * hot * log_p;
    }
    e.correct += label >= 0 && top - row == label ? 1 : 0;
  }
  return e;
}

}  // namespace warpstep::cuda::testing
