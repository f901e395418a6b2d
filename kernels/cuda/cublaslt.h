// Owners of cublasLt's objects.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>

#include "engine/core/types.h"

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
// Column-major: a column has `rows` elements, and the next begins `pitch` elements later.
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                   std::int64_t pitch);
Preference make_preference();

cudaDataType_t data_type(DType dtype);  // Error for types that are not multiplied

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

// An attribute of an algorithm; 0 where it has none.
template <class T>
T get(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

}  // namespace cublaslt
}  // namespace warpstep::cuda
