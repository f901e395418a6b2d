// Matrix products with their fused epilogues, as values: described here, run by cublasLt
// (matmul_cublaslt.cpp), or in tests by plain loops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/types.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

class CudaStream;

// d [rows,columns] = op(a) op(b), all row-major with a pitch in elements; sums in f32 (or tf32, see
// Settings). a is stored [rows,depth], or [depth,rows] if transposed; b [depth,columns], or
// [columns,depth] if transposed.
struct Matmul {
  enum class Epilogue : std::uint8_t {
    none,
    bias,                 // d + bias[column]
    relu_bias,            // max(0, d + bias[column])
    relu_bias_aux,        // likewise; aux: one bit per element, set where d + bias > 0
    bias_gradient,        // d unchanged; bias[row] = sum of op(a) over its depth
    drelu,                // d where aux's bit is set, else 0
    drelu_bias_gradient,  // likewise, and bias[column] = sum of that d over its rows
    gelu_bias,            // gelu(d + bias[column]), in the form with tanh
    gelu_bias_aux,        // likewise; aux [rows,columns] of `dtype`: d + bias
    dgelu_bias_gradient,  // d times gelu's slope at aux, and bias[column] = sum of that d
  };
  DType dtype = DType::f32;  // of a, b, d and bias
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t pitch_a = 0, pitch_b = 0, pitch_d = 0;
  Epilogue epilogue = Epilogue::none;
  std::int64_t aux_pitch = 0;  // elements per row of aux: a multiple of 128 bits, or 8 of gelu's
  bool operator==(const Matmul&) const = default;

  std::string key() const;  // for caches: one line without blanks
  bool has_bias() const;
  bool has_aux() const { return has_bit_aux() || has_gelu_aux(); }
  bool has_bit_aux() const;
  bool has_gelu_aux() const;
  std::size_t aux_bytes() const;
};

struct MatmulBuffers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;  // read or written, depending on the epilogue; null without one
  void* aux = nullptr;   // null without one: with one that it does not ask for, cublasLt refuses
};

class MatmulPlan {
 public:
  virtual ~MatmulPlan();
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::string implementation() const = 0;  // "cublasLt algo 66 tile 128x64, split-k 2"
  virtual void execute(CudaStream& stream, const MatmulBuffers& buffers, void* workspace) const = 0;
};

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary();
  // Throws DeviceError when the library has no algorithm for it, DeviceLost when the device fails.
  // For an assumed device: a plan that cannot be executed, with implementation() "(chosen on the
  // device)". Messages call it `name`.
  virtual std::unique_ptr<MatmulPlan> plan(const Matmul& matmul, const std::string& name) = 0;
  // With `on`, plan() runs nothing on the device and keeps no plan; initially off.
  virtual void only_plan(bool /*on*/) {}
  virtual std::string version() const = 0;  // "cuBLASLt 13.1.0"
};

std::unique_ptr<MatmulLibrary> open_matmul_library(const Settings& settings);

}  // namespace warpstep::cuda
