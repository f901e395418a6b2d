#include "kernels/cuda/matmul_cublaslt.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "engine/core/error.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string what = fmt::format("{}: {} ({})", call, cublasLtGetStatusName(status),
                                       cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) fail<OutOfDeviceMemory>("{}", what);
  fail<DeviceError>("{}", what);
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
    default: fail<Error>("cublasLt has no matrix product of {} values", name(dtype));
  }
}

namespace {

using Epilogue = Matmul::Epilogue;

// Lengths and operands as documented in cublasLt.h, where its rows are our columns:
// BIAS "must match matrix D rows"; BGRADB sums its B, our a, over k into a vector of the columns of
// its D, our rows; DRELU_BGRAD and DGELU_BGRAD sum the D they write over its columns, our rows.
cublasLtEpilogue_t epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::relu_bias: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::relu_bias_aux: return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::drelu: return CUBLASLT_EPILOGUE_DRELU;
    case Epilogue::drelu_bias_gradient: return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case Epilogue::gelu_bias: return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::gelu_bias_aux: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::dgelu_bias_gradient: return CUBLASLT_EPILOGUE_DGELU_BGRAD;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cublasComputeType_t compute_type(const Matmul& matmul, bool tf32) {
  return tf32 && matmul.dtype == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// cublasLt finds such mistakes only in the search for an algorithm, and then reports only that an
// argument is invalid.
void validate(const Matmul& m) {
  const auto pitch = [&](const char* matrix, std::int64_t elements, std::int64_t least) {
    if (elements >= least) return;
    fail<Error>("matmul {}: rows of {} have {} elements and a pitch of {}", m.key(), matrix, least,
                elements);
  };
  if (m.rows <= 0 || m.columns <= 0 || m.depth <= 0) fail<Error>("matmul {} is empty", m.key());
  pitch("a", m.pitch_a, m.transpose_a ? m.rows : m.depth);
  pitch("b", m.pitch_b, m.transpose_b ? m.depth : m.columns);
  pitch("d", m.pitch_d, m.columns);
  if (!m.has_aux()) return;
  pitch("aux", m.aux_pitch, m.columns);
  const bool bits = m.has_bit_aux();
  if (const int multiple = bits ? 128 : 8; m.aux_pitch % multiple != 0) {
    fail<Error>("matmul {}: a row of aux has {} {}, which is not a multiple of {}", m.key(),
                m.aux_pitch, bits ? "bits" : "elements", multiple);
  }
}

Layout layout_of(const Matmul& m, bool transposed, std::int64_t rows, std::int64_t columns,
                 std::int64_t pitch) {
  return transposed ? make_layout(data_type(m.dtype), columns, rows, pitch)
                    : make_layout(data_type(m.dtype), rows, columns, pitch);
}

}  // namespace

Problem::Problem(const Matmul& m, bool tf32)
    : operation((validate(m), make_operation(compute_type(m, tf32)))),
      a(layout_of(m, m.transpose_b, m.columns, m.depth, m.pitch_b)),
      b(layout_of(m, m.transpose_a, m.depth, m.rows, m.pitch_a)),
      d(layout_of(m, false, m.columns, m.rows, m.pitch_d)) {
  const auto transposition = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transposition(m.transpose_b));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transposition(m.transpose_a));
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(m.epilogue));
  // The bias and GELU's aux have d's type by default. The heuristics do not read through these
  // pointers, but use their alignment: 16 bytes, as for every buffer.
  void* const aligned = std::bit_cast<void*>(std::uintptr_t{16});
  if (m.has_bias()) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
  if (m.has_aux()) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, m.aux_pitch);
  }
}

std::string describe(const cublasLtMatmulAlgo_t& algorithm) {
  const auto split_k = get<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  return fmt::format("algo {} tile {} stages {}{}",
                     get<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
                     get<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     get<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     split_k > 1 ? fmt::format(" split-k {}", split_k) : "");
}

std::string save(const Algorithm& algorithm) {
  std::string words;
  for (const std::uint64_t word : algorithm.algorithm.data) words += fmt::format("{:016x}", word);
  return words + algorithm.text;
}

std::optional<Algorithm> restore(std::string_view saved) {
  constexpr std::size_t digits = 16;
  Algorithm algorithm;
  for (std::uint64_t& word : algorithm.algorithm.data) {
    if (saved.size() < digits) return std::nullopt;
    const char* const end = saved.data() + digits;
    const auto [parsed, error] = std::from_chars(saved.data(), end, word, 16);
    if (error != std::errc() || parsed != end) return std::nullopt;
    saved.remove_prefix(digits);
  }
  algorithm.text = saved;
  return algorithm;
}

CublasLtPlan::CublasLtPlan(std::string name, std::shared_ptr<const Problem> problem,
                           Algorithm algorithm, std::shared_ptr<cublasLtContext> handle)
    : name_(std::move(name)),
      problem_(std::move(problem)),
      algorithm_(std::move(algorithm)),
      handle_(std::move(handle)) {}

void CublasLtPlan::execute(CudaStream& stream, const MatmulBuffers& buffers,
                           void* workspace) const {
  if (handle_ == nullptr) {
    fail<DeviceError>("{}: planned for an assumed device; it cannot be executed", name_);
  }
  if (buffers.bias != nullptr) {
    set(problem_->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
  }
  if (buffers.aux != nullptr) {
    set(problem_->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, buffers.aux);
  }
  constexpr float one = 1, zero = 0;  // d = 1 * op(a) op(b) + 0 * d
  check(cublasLtMatmul(handle_.get(), problem_->operation.get(), &one, buffers.b, problem_->a.get(),
                       buffers.a, problem_->b.get(), &zero, buffers.d, problem_->d.get(), buffers.d,
                       problem_->d.get(), &algorithm_.algorithm, workspace,
                       algorithm_.workspace_bytes, stream.handle()),
        name_.c_str());
}

}  // namespace cublaslt
}  // namespace warpstep::cuda
