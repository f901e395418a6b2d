// Vector loops over a row; the sums of the 16 lanes are added in a fixed order, so that the bits
// are the same every time.
#include <array>
#include <cmath>

#include "cosine_embedding.h"
#include "cosine_embedding_kernels.h"

using namespace warpstep;

namespace cpu {
namespace {

constexpr std::int64_t lanes = 16;
using Sums = std::array<float, lanes>;

double total(const Sums& sums) {
  double sum = 0;
  for (const float lane : sums) sum += static_cast<double>(lane);
  return sum;
}

struct Row {
  const float *x1, *x2;
  double s1 = 0, s2 = 0, product = 0;

  Row(const Buffers& b, const CosineRows& shape, std::int64_t n)
      : x1(as<float>(b.in[0]) + n * shape.columns), x2(as<float>(b.in[1]) + n * shape.columns) {
    Sums of_1{}, of_2{}, of_both{};
    const std::int64_t whole = shape.columns / lanes * lanes;
    for (std::int64_t k = 0; k < whole; k += lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        add(k + lane, idx(lane), of_1, of_2, of_both);
    for (std::int64_t k = whole; k < shape.columns; ++k)
      add(k, idx(k - whole), of_1, of_2, of_both);
    s1 = total(of_1) + square_epsilon;
    s2 = total(of_2) + square_epsilon;
    product = total(of_both);
  }
  void add(std::int64_t k, std::size_t lane, Sums& of_1, Sums& of_2, Sums& of_both) const {
    of_1[lane] += x1[k] * x1[k];
    of_2[lane] += x2[k] * x2[k];
    of_both[lane] += x1[k] * x2[k];
  }
  double size() const { return std::sqrt(s1 * s2); }
  double cosine() const { return product / size(); }
};

// to = scale (other / size - self cos / s)
void write(float* to, const float* other, const float* self, float by_other, float by_self,
           std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) to[k] = by_other * other[k] - by_self * self[k];
}

}  // namespace

std::unique_ptr<Kernel> cosine_embedding(const CosineRows& shape) {
  return host_kernel("vector loops", [shape](const Buffers& b) {
    double sum = 0;
    for (std::int64_t n = 0; n < shape.rows; ++n) {
      const std::int32_t y = as<std::int32_t>(b.in[2])[n];
      const double cosine = Row(b, shape, n).cosine();
      if (y == 1) sum += 1 - cosine;
      if (y == -1 && !(cosine <= shape.margin)) sum += cosine - shape.margin;  // NaN too
    }
    *as<float>(b.out[0]) = static_cast<float>(sum / static_cast<double>(shape.rows));
  });
}

std::unique_ptr<Kernel> cosine_embedding_grad(const CosineRows& shape) {
  return host_kernel("vector loops", [shape](const Buffers& b) {
    const double d_row = static_cast<double>(*as<float>(b.in[3])) / static_cast<double>(shape.rows);
    for (std::int64_t n = 0; n < shape.rows; ++n) {
      const std::int32_t y = as<std::int32_t>(b.in[2])[n];
      const Row row(b, shape, n);
      const double cosine = row.cosine();
      double d_cosine = 0;
      if (y == 1) d_cosine = -d_row;
      if (y == -1 && cosine >= shape.margin) d_cosine = d_row;
      const auto by_other = static_cast<float>(d_cosine / row.size());
      const double by_self = d_cosine * cosine;
      const std::int64_t begin = n * shape.columns;
      write(as<float>(b.out[0]) + begin, row.x2, row.x1, by_other,
            static_cast<float>(by_self / row.s1), shape.columns);
      write(as<float>(b.out[1]) + begin, row.x1, row.x2, by_other,
            static_cast<float>(by_self / row.s2), shape.columns);
    }
  });
}

}  // namespace cpu
