// A Matmul in cublasLt's terms, its plan, and owners of the library's objects.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/matmul.h"

namespace warpstep::cuda {

// Throws DeviceError that names `call` and the status.
void check(cublasStatus_t status, const char* call);

namespace cublaslt {

struct Deleter {
  void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  void operator()(cublasLtMatmulDesc_t matmul) const { cublasLtMatmulDescDestroy(matmul); }
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Handle = std::unique_ptr<cublasLtContext, Deleter>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Deleter>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Deleter>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Deleter>;

Handle make_handle();
Operation make_operation(cublasComputeType_t compute);  // scales are f32
// Column-major: a column has `rows` elements, and the next one begins `pitch` elements later.
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                   std::int64_t pitch);
Preference make_preference();

cudaDataType_t data_type(DType dtype);  // throws Error for integers

template <class T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t name, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), name, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

// An attribute of an algorithm; 0 if the algorithm does not have it.
template <class T>
T get(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

// cublasLt is column-major: its matrix of m rows and n columns has the memory layout of our n rows
// of m. So it computes the transpose, d' = op(b)' op(a)', whose factors and result are our matrices
// in place, without copies:
//
//   its A = our b, m = columns      its B = our a, n = rows      its D = our d      k = depth
//
// A row-major b [depth,columns] is its m x k matrix, not transposed; one stored [columns,depth] is
// k x m, transposed. Likewise a. Anything along its rows of D (a bias, a bias gradient, leading
// dimensions) is along our columns.
struct Problem {
  Problem(const Matmul& matmul, bool tf32);

  Operation operation;
  Layout a, b, d;  // in its terms
};

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  std::string text;  // "algo 66 tile 20 stages 35 split-k 2"
};
std::string describe(const cublasLtMatmulAlgo_t& algorithm);

// An algorithm as text for the plan cache, and back; valid for one version of cublasLt.
std::string save(const Algorithm& algorithm);
std::optional<Algorithm> restore(std::string_view saved);

// Not thread-safe: execute() sets the addresses of bias and aux in the operation.
class CublasLtPlan final : public MatmulPlan {
 public:
  CublasLtPlan(std::string name, std::shared_ptr<const Problem> problem, Algorithm algorithm,
               std::shared_ptr<cublasLtContext> handle);

  const Algorithm& algorithm() const { return algorithm_; }
  std::size_t workspace_bytes() const override { return algorithm_.workspace_bytes; }
  std::string implementation() const override { return "cublasLt " + algorithm_.text; }
  void execute(CudaStream& stream, const MatmulBuffers& buffers, void* workspace) const override;

 private:
  std::string name_;
  std::shared_ptr<const Problem> problem_;
  Algorithm algorithm_;
  std::shared_ptr<cublasLtContext> handle_;  // null without a device
};

}  // namespace cublaslt
}  // namespace warpstep::cuda
