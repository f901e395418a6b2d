#include "kernels/cuda/matmul_cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "kernels/cuda/assumed_devices.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {
namespace {

using cublaslt::Algorithm;
using cublaslt::Problem;
using testing::HasSubstr;

// fc1 of cifar10cnn: [128,2048] x [2048,2048]' + bias.
Matmul linear(DType dtype) {
  return {.dtype = dtype,
          .rows = 128,
          .columns = 2048,
          .depth = 1024,
          .transpose_b = true,
          .pitch_a = 1024,
          .pitch_b = 1024,
          .pitch_d = 2048,
          .epilogue = Matmul::Epilogue::relu_bias_aux,
          .aux_pitch = 2048};
}

// Memory for a stream where none can be made: it is named, and never looked at.
union NoStream {
  NoStream() {}
  ~NoStream() {}
  CudaStream stream;
};

template <class T>
T attribute(const cublaslt::Layout& layout, cublasLtMatrixLayoutAttribute_t name) {
  T value{};
  check(cublasLtMatrixLayoutGetAttribute(layout.get(), name, &value, sizeof value, nullptr),
        "cublasLtMatrixLayoutGetAttribute");
  return value;
}

std::array<std::int64_t, 3> extents(const cublaslt::Layout& layout) {
  return {static_cast<std::int64_t>(attribute<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS)),
          static_cast<std::int64_t>(attribute<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS)),
          attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)};
}

template <class T>
T attribute(const Problem& problem, cublasLtMatmulDescAttributes_t name) {
  T value{};
  check(
      cublasLtMatmulDescGetAttribute(problem.operation.get(), name, &value, sizeof value, nullptr),
      "cublasLtMatmulDescGetAttribute");
  return value;
}

TEST(CublasLtProblem, IsTheTransposedProduct) {
  const Problem problem(linear(DType::f16), false);
  using Extents = std::array<std::int64_t, 3>;
  EXPECT_EQ(extents(problem.a), (Extents{1024, 2048, 1024}));  // b as it is stored
  EXPECT_EQ(extents(problem.b), (Extents{1024, 128, 1024}));   // a
  EXPECT_EQ(extents(problem.d), (Extents{2048, 128, 2048}));
  EXPECT_EQ(attribute<cublasOperation_t>(problem, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
  EXPECT_EQ(attribute<cublasOperation_t>(problem, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
  EXPECT_EQ(attribute<cublasLtEpilogue_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE),
            CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  EXPECT_EQ(attribute<std::int64_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 2048);
}

TEST(CublasLtProblem, ABiasGradientSumsOurAWhichIsItsB) {
  Matmul matmul = linear(DType::f16);
  matmul.epilogue = Matmul::Epilogue::bias_gradient;
  EXPECT_EQ(attribute<cublasLtEpilogue_t>(Problem(matmul, false), CUBLASLT_MATMUL_DESC_EPILOGUE),
            CUBLASLT_EPILOGUE_BGRADB);
}

TEST(CublasLtProblem, KeepsWhatGeluReadsInRowsOfElements) {
  using enum Matmul::Epilogue;
  for (const auto& [epilogue, theirs] : {std::pair{gelu_bias, CUBLASLT_EPILOGUE_GELU_BIAS},
                                         {gelu_bias_aux, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
                                         {dgelu_bias_gradient, CUBLASLT_EPILOGUE_DGELU_BGRAD}}) {
    Matmul matmul = linear(DType::bf16);
    matmul.epilogue = epilogue;
    matmul.aux_pitch = epilogue == gelu_bias ? 0 : 2048;
    const Problem problem(matmul, false);
    EXPECT_EQ(attribute<cublasLtEpilogue_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE), theirs);
    EXPECT_EQ(attribute<std::int64_t>(problem, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD),
              matmul.aux_pitch);
    EXPECT_EQ(matmul.aux_bytes(), epilogue == gelu_bias ? 0U : 128U * 2048 * 2);
  }
}

TEST(CublasLtProblem, OnlyF32IsComputedInTf32) {
  const auto compute = [](DType dtype, bool tf32) {
    return attribute<cublasComputeType_t>(Problem(linear(dtype), tf32),
                                          CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  };
  EXPECT_EQ(compute(DType::f32, false), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute(DType::f32, true), CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(compute(DType::bf16, true), CUBLAS_COMPUTE_32F);
}

TEST(CublasLtProblem, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const auto message = [](const Matmul& matmul) -> std::string {
    try {
      Problem(matmul, false);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Matmul matmul = linear(DType::f16);
  EXPECT_EQ(message(matmul), "accepted");
  matmul.pitch_b = 1023;
  EXPECT_THAT(message(matmul), HasSubstr("rows of b have 1024 elements and a pitch of 1023"));
  matmul = linear(DType::f16);
  matmul.transpose_b = false;
  EXPECT_THAT(message(matmul), HasSubstr("rows of b have 2048 elements and a pitch of 1024"));
  matmul = linear(DType::f16);
  matmul.aux_pitch = 2056;
  EXPECT_THAT(message(matmul), HasSubstr("2056 bits, which is not a multiple of 128"));
  matmul.aux_pitch = 1920;
  EXPECT_THAT(message(matmul), HasSubstr("rows of aux have 2048"));
  matmul.epilogue = Matmul::Epilogue::relu_bias;  // has no aux
  EXPECT_EQ(message(matmul), "accepted");
  matmul.epilogue = Matmul::Epilogue::gelu_bias_aux;  // of elements, not of bits
  matmul.aux_pitch = 2056;
  EXPECT_EQ(message(matmul), "accepted");
  matmul.aux_pitch = 2052;
  EXPECT_THAT(message(matmul), HasSubstr("2052 elements, which is not a multiple of 8"));
  matmul.depth = 0;
  EXPECT_THAT(message(matmul), HasSubstr("is empty"));
  matmul = linear(DType::u8);
  EXPECT_THAT(message(matmul), HasSubstr("of u8 values"));
}

TEST(CublasLtAlgorithm, IsSavedAndRestoredAsText) {
  Algorithm algorithm{.text = "algo 66 tile 20 stages 35 split-k 2"};
  std::uint64_t word = 0xfedcba9876543210u;
  for (std::uint64_t& data : algorithm.algorithm.data) data = word /= 3;
  const std::string saved = cublaslt::save(algorithm);
  const std::optional<Algorithm> restored = cublaslt::restore(saved);
  ASSERT_TRUE(restored.has_value());
  EXPECT_EQ(restored->text, algorithm.text);
  EXPECT_EQ(std::to_array(restored->algorithm.data), std::to_array(algorithm.algorithm.data));
  EXPECT_FALSE(cublaslt::restore(std::string_view(saved).substr(0, 127)).has_value());
  EXPECT_FALSE(cublaslt::restore("x" + saved.substr(1)).has_value());
  EXPECT_FALSE(cublaslt::restore("").has_value());
}

TEST(CublasLtLibrary, PlansWithoutADeviceLeaveTheChoiceToIt) {
  Settings settings = assume_device("sm_90");
  const auto library = open_matmul_library(settings);
  EXPECT_THAT(library->version(), testing::StartsWith("cuBLASLt 13."));
  for (int epilogue = 0; epilogue <= 9; ++epilogue) {
    Matmul matmul = linear(DType::f16);
    matmul.epilogue = static_cast<Matmul::Epilogue>(epilogue);
    const auto plan = library->plan(matmul, "fc1/linear");
    EXPECT_EQ(plan->implementation(), "cublasLt (chosen on the device)");
    EXPECT_EQ(plan->workspace_bytes(), std::size_t{32} << 20);
    NoStream none;
    EXPECT_THROW(plan->execute(none.stream, {}, nullptr), DeviceError);
  }
  settings.workspace_cap = 4096;
  EXPECT_EQ(open_matmul_library(settings)->plan(linear(DType::f32), "fc1")->workspace_bytes(),
            4096u);
}

}  // namespace
}  // namespace warpstep::cuda
