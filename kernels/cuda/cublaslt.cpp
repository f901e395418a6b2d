#include "kernels/cuda/cublaslt.h"

#include "engine/core/error.h"

namespace warpstep::cuda {

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail<DeviceError>("{}: {} ({})", call, cublasLtGetStatusName(status),
                    cublasLtGetStatusString(status));
}

namespace cublaslt {

Handle make_handle() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  return Handle(handle);
}

Operation make_operation(cublasComputeType_t compute) {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  return Operation(operation);
}

Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                   std::int64_t pitch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), pitch),
        "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

Preference make_preference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  return Preference(preference);
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail<Error>("a matrix product of {} values", name(dtype));
  }
}

}  // namespace cublaslt
}  // namespace warpstep::cuda
