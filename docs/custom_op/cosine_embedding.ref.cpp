// The reference for the other kernels: plain loops in double.
#include <cmath>

#include "cosine_embedding.h"
#include "cosine_embedding_kernels.h"

using namespace warpstep;

namespace ref {
namespace {

struct Row {
  const double *x1, *x2;
  double s1 = square_epsilon, s2 = square_epsilon, product = 0;

  Row(const Buffers& b, const CosineRows& shape, std::int64_t n)
      : x1(as<double>(b.in[0]) + n * shape.columns), x2(as<double>(b.in[1]) + n * shape.columns) {
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      s1 += x1[k] * x1[k];
      s2 += x2[k] * x2[k];
      product += x1[k] * x2[k];
    }
  }
  double size() const { return std::sqrt(s1 * s2); }
  double cosine() const { return product / size(); }
};

}  // namespace

std::unique_ptr<Kernel> cosine_embedding(const CosineRows& shape) {
  return host_kernel("loops", [shape](const Buffers& b) {
    double sum = 0;
    for (std::int64_t n = 0; n < shape.rows; ++n) {
      const std::int32_t y = as<std::int32_t>(b.in[2])[n];
      const double cosine = Row(b, shape, n).cosine();
      if (y == 1) sum += 1 - cosine;
      if (y == -1 && !(cosine <= shape.margin)) sum += cosine - shape.margin;  // NaN too
    }
    *as<double>(b.out[0]) = sum / static_cast<double>(shape.rows);
  });
}

std::unique_ptr<Kernel> cosine_embedding_grad(const CosineRows& shape) {
  return host_kernel("loops", [shape](const Buffers& b) {
    const double d_row = *as<double>(b.in[3]) / static_cast<double>(shape.rows);
    for (std::int64_t n = 0; n < shape.rows; ++n) {
      const std::int32_t y = as<std::int32_t>(b.in[2])[n];
      const Row row(b, shape, n);
      const double cosine = row.cosine();
      double d_cosine = 0;
      if (y == 1) d_cosine = -d_row;
      if (y == -1 && cosine >= shape.margin) d_cosine = d_row;
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        const std::int64_t i = n * shape.columns + k;
        as<double>(b.out[0])[i] = d_cosine * (row.x2[k] / row.size() - cosine * row.x1[k] / row.s1);
        as<double>(b.out[1])[i] = d_cosine * (row.x1[k] / row.size() - cosine * row.x2[k] / row.s2);
      }
    }
  });
}

}  // namespace ref
