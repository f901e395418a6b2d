// The loops that stand for cublasLt, against independent formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "kernels/cuda/matmul.h"
#include "tests/cuda_on_cpu/library_testing.h"

namespace warpstep::cuda {
namespace {

using testing::HasSubstr;

// d of a product by its definition, without epilogue.
double element(const Matmul& m, const std::vector<float>& a, const std::vector<float>& b,
               std::int64_t row, std::int64_t column) {
  double sum = 0;
  for (std::int64_t k = 0; k < m.depth; ++k) {
    const float left = a[idx(m.transpose_a ? k * m.pitch_a + row : row * m.pitch_a + k)];
    const float right = b[idx(m.transpose_b ? column * m.pitch_b + k : k * m.pitch_b + column)];
    sum += static_cast<double>(left) * static_cast<double>(right);
  }
  return sum;
}

struct Product {
  explicit Product(Matmul what)
      : m(what),
        a_values(randoms(idx((m.transpose_a ? m.depth : m.rows) * m.pitch_a), 1)),
        b_values(randoms(idx((m.transpose_b ? m.columns : m.depth) * m.pitch_b), 2)),
        a(m.dtype, a_values),
        b(m.dtype, b_values),
        d(m.dtype, std::vector<float>(idx(m.rows * m.pitch_d), 77)),
        bias(m.dtype, randoms(idx(std::max(m.rows, m.columns)), 3)) {}
  void run(void* aux) const {
    const auto plan = open_matmul_library({})->plan(m, "product");
    const Memory workspace(DType::f32, plan->workspace_bytes() / 4);
    CudaStream stream;
    plan->execute(stream, {a.data(), b.data(), d.data(), bias.data(), aux}, workspace.data());
  }

  Matmul m;
  std::vector<float> a_values, b_values;
  Memory a, b, d, bias;
};

TEST(EmulatedMatmul, MultipliesWhateverIsTransposed) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Product p({dtype, 5, 3, 4, transpose_a, transpose_b, 8, 9, 6});
        p.run(nullptr);
        const auto d = p.d.values();
        for (std::int64_t r = 0; r < 5; ++r)
          for (std::int64_t c = 0; c < 6; ++c) {
            const double exact = c < 3 ? element(p.m, p.a_values, p.b_values, r, c) : 77;
            EXPECT_NEAR(d[idx(r * 6 + c)], exact, epsilon(dtype) * std::abs(exact)) << r << c;
          }
      }
}

TEST(EmulatedMatmul, AddsBiasAndKeepsWhereItIsPositive) {
  using enum Matmul::Epilogue;
  const Memory aux(DType::f32, 5 * 128 / 32);
  for (const auto epilogue : {bias, relu_bias, relu_bias_aux}) {
    const Product p({DType::f32, 5, 3, 4, false, false, 4, 3, 3, epilogue, 128});
    p.run(aux.data());
    const auto d = p.d.values(), added = p.bias.values();
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 3; ++c) {
        const double sum = element(p.m, p.a_values, p.b_values, r, c) + added[idx(c)];
        EXPECT_EQ(d[idx(r * 3 + c)], epilogue == bias ? sum : std::max(sum, 0.0));
      }
  }
  // The gradient of the same rectifier, by the bits that it stored.
  const Product positive({DType::f32, 5, 3, 4, false, false, 4, 3, 3, bias});
  positive.run(nullptr);
  for (const auto epilogue : {drelu, drelu_bias_gradient}) {
    const Product p({DType::f32, 5, 3, 2, true, true, 5, 2, 3, epilogue, 128});
    p.run(aux.data());
    const auto d = p.d.values(), kept = positive.d.values(), sums = p.bias.values();
    for (std::int64_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < 5; ++r) {
        const double exact =
            kept[idx(r * 3 + c)] > 0 ? element(p.m, p.a_values, p.b_values, r, c) : 0;
        EXPECT_EQ(d[idx(r * 3 + c)], exact);
        sum += exact;
      }
      if (epilogue == drelu_bias_gradient) {
        EXPECT_EQ(sums[idx(c)], sum);
      }
    }
  }
}

double gelu_at(double x) {
  return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
}

TEST(EmulatedMatmul, AppliesGeluAndItsSlopeAtWhatItKept) {
  using enum Matmul::Epilogue;
  const Memory aux(DType::f32, 5 * 8);
  for (const auto epilogue : {gelu_bias, gelu_bias_aux}) {
    const Product p({DType::f32, 5, 3, 4, false, false, 4, 3, 3, epilogue, 8});
    p.run(aux.data());
    const auto d = p.d.values(), added = p.bias.values(), kept = aux.values();
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 3; ++c) {
        const double sum = element(p.m, p.a_values, p.b_values, r, c) + added[idx(c)];
        EXPECT_NEAR(d[idx(r * 3 + c)], gelu_at(sum), 1e-6);
        if (epilogue == gelu_bias_aux) {
          EXPECT_EQ(kept[idx(r * 8 + c)], static_cast<float>(sum));
        }
      }
  }
  const Product p({DType::f32, 5, 3, 2, true, true, 5, 2, 3, dgelu_bias_gradient, 8});
  p.run(aux.data());
  const auto d = p.d.values(), kept = aux.values(), sums = p.bias.values();
  for (std::int64_t c = 0; c < 3; ++c) {
    double sum = 0;
    for (std::int64_t r = 0; r < 5; ++r) {
      const double z = kept[idx(r * 8 + c)];
      const double slope = (gelu_at(z + 1e-5) - gelu_at(z - 1e-5)) / 2e-5;
      const double exact = element(p.m, p.a_values, p.b_values, r, c) * slope;
      EXPECT_NEAR(d[idx(r * 3 + c)], exact, 1e-6);
      sum += exact;
    }
    EXPECT_NEAR(sums[idx(c)], sum, 1e-5);
  }
}

TEST(EmulatedMatmul, SumsTheLeftOperandForABiasGradient) {
  const Product p({DType::f32, 5, 3, 4, true, false, 6, 3, 3, Matmul::Epilogue::bias_gradient});
  p.run(nullptr);
  const auto d = p.d.values(), sums = p.bias.values();
  for (std::size_t r = 0; r < 5; ++r) {
    float sum = 0;
    for (std::size_t k = 0; k < 4; ++k) sum += p.a_values[k * 6 + r];
    EXPECT_EQ(sums[r], sum);
    EXPECT_EQ(d[r * 3], element(p.m, p.a_values, p.b_values, static_cast<std::int64_t>(r), 0));
  }
}

TEST(EmulatedMatmul, RefusesWhatTheLibraryRefuses) {
  const auto library = open_matmul_library({});
  EXPECT_THROW(library->plan({DType::f32, 5, 0, 4, false, false, 4, 3, 3}, "p"), Error);
  EXPECT_THROW(library->plan({DType::f32, 5, 3, 4, false, false, 3, 3, 3}, "p"), Error);
  EXPECT_THROW(
      library->plan({DType::f32, 5, 3, 4, false, false, 4, 3, 3, Matmul::Epilogue::drelu, 64}, "p"),
      Error);
  const Product p({DType::f32, 5, 3, 4, false, false, 4, 3, 3, Matmul::Epilogue::drelu, 128});
  EXPECT_THAT([&] { p.run(nullptr); }, testing::ThrowsMessage<Error>(HasSubstr("aux is null")));
  EXPECT_THAT([&] { p.run(p.d.data()); },
              testing::ThrowsMessage<Error>(HasSubstr("d is written over aux")));
}

}  // namespace
}  // namespace warpstep::cuda
