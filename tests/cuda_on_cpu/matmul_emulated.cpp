// MatmulLibrary by plain loops over the same description that cublasLt receives: sums in double,
// each result rounded once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/elements.h"
#include "tests/cuda_on_cpu/fake_runtime.h"

namespace warpstep::cuda {
namespace {

using Epilogue = Matmul::Epilogue;

constexpr std::size_t workspace_need = 528;

bool writes_bias(Epilogue e) {
  return e == Epilogue::bias_gradient || e == Epilogue::drelu_bias_gradient ||
         e == Epilogue::dgelu_bias_gradient;
}
bool reads_bias(Epilogue e) {
  return e == Epilogue::bias || e == Epilogue::relu_bias || e == Epilogue::relu_bias_aux ||
         e == Epilogue::gelu_bias || e == Epilogue::gelu_bias_aux;
}
bool reads_bits(Epilogue e) {
  return e == Epilogue::drelu || e == Epilogue::drelu_bias_gradient;
}
bool reads_aux(Epilogue e) {
  return reads_bits(e) || e == Epilogue::dgelu_bias_gradient;
}
bool writes_aux(Epilogue e) {
  return e == Epilogue::relu_bias_aux || e == Epilogue::gelu_bias_aux;
}

// GELU in the form with tanh, and its slope.
double gelu_argument(double z) {
  return std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
}
double gelu(double z) {
  return 0.5 * z * (1 + std::tanh(gelu_argument(z)));
}
double gelu_slope(double z) {
  const double t = std::tanh(gelu_argument(z));
  return 0.5 * (1 + t) +
         0.5 * z * (1 - t * t) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * z * z);
}

struct Extent {
  std::int64_t rows, columns;  // as stored
};
Extent stored_a(const Matmul& m) {
  return m.transpose_a ? Extent{m.depth, m.rows} : Extent{m.rows, m.depth};
}
Extent stored_b(const Matmul& m) {
  return m.transpose_b ? Extent{m.columns, m.depth} : Extent{m.depth, m.columns};
}

void check_matmul(const Matmul& m, const std::string& name) {
  if (m.rows <= 0 || m.columns <= 0 || m.depth <= 0 || !is_float(m.dtype))
    fail<Error>("{}: a product of {} x {} x {}, {}", name, m.rows, m.columns, m.depth,
                warpstep::name(m.dtype));
  if (m.pitch_a < stored_a(m).columns || m.pitch_b < stored_b(m).columns || m.pitch_d < m.columns)
    fail<Error>("{}: pitches {}, {}, {} are below their rows", name, m.pitch_a, m.pitch_b,
                m.pitch_d);
  const bool has_aux = writes_aux(m.epilogue) || reads_aux(m.epilogue);
  if (has_aux && (m.aux_pitch < m.columns || m.aux_pitch % (m.has_gelu_aux() ? 8 : 128) != 0))
    fail<Error>("{}: {} elements a row of aux for {} columns", name, m.aux_pitch, m.columns);
}

// cublasLt does not support everything everywhere: here an aux of one row can be applied but not
// written, and one of two rows can be written but not applied.
bool has_no_algorithm(const Matmul& m) {
  return (writes_aux(m.epilogue) && m.rows == 1) || (reads_aux(m.epilogue) && m.rows == 2);
}

void check_buffers(const Matmul& m, const std::string& name, const MatmulBuffers& buffers,
                   const void* workspace) {
  const std::size_t element = size_bytes(m.dtype);
  const auto matrix = [&](const char* who, const void* address, Extent extent, std::int64_t pitch) {
    return Piece{who, address, idx((extent.rows - 1) * pitch + extent.columns) * element};
  };
  std::vector<Piece> read{matrix("a", buffers.a, stored_a(m), m.pitch_a),
                          matrix("b", buffers.b, stored_b(m), m.pitch_b)};
  std::vector<Piece> written{matrix("d", buffers.d, {m.rows, m.columns}, m.pitch_d),
                             {"the workspace", workspace, workspace_need}};
  const std::int64_t biases = m.epilogue == Epilogue::bias_gradient ? m.rows : m.columns;
  const Piece bias{"bias", buffers.bias, idx(biases) * element};
  if (reads_bias(m.epilogue)) read.push_back(bias);
  if (writes_bias(m.epilogue)) written.push_back(bias);
  const Piece aux{"aux", buffers.aux, m.aux_bytes()};
  if (reads_aux(m.epilogue)) read.push_back(aux);
  if (writes_aux(m.epilogue)) written.push_back(aux);

  for (const Piece& piece : read) require_aligned(name, piece);
  for (std::size_t i = 0; i < written.size(); ++i) {
    require_aligned(name, written[i]);
    for (const Piece& piece : read) require_apart(name, written[i], piece);
    for (std::size_t j = 0; j < i; ++j) require_apart(name, written[i], written[j]);
  }
}

using Dense = std::vector<float>;

// op(matrix), where `stored` is its content in memory.
Dense read(const void* base, DType dtype, Extent stored, std::int64_t pitch, bool transpose) {
  Dense dense(idx(stored.rows * stored.columns));
  for (std::int64_t r = 0; r < stored.rows; ++r)
    for (std::int64_t c = 0; c < stored.columns; ++c)
      dense[idx(transpose ? c * stored.rows + r : r * stored.columns + c)] =
          load(base, dtype, r * pitch + c);
  return dense;
}

class Run {
 public:
  Run(const Matmul& matmul, const MatmulBuffers& buffers) : m_(matmul), buffers_(buffers) {}
  void operator()() {
    const Dense a = read(buffers_.a, m_.dtype, stored_a(m_), m_.pitch_a, m_.transpose_a);
    const Dense b = read(buffers_.b, m_.dtype, stored_b(m_), m_.pitch_b, m_.transpose_b);
    bias_gradient_.assign(idx(m_.epilogue == Epilogue::bias_gradient ? m_.rows : m_.columns), 0);
    std::vector<double> sums(idx(m_.columns));
    for (std::int64_t r = 0; r < m_.rows; ++r) {
      std::ranges::fill(sums, 0);
      for (std::int64_t k = 0; k < m_.depth; ++k) {
        const double factor = a[idx(r * m_.depth + k)];
        const float* row = &b[idx(k * m_.columns)];
        for (std::size_t c = 0; c < sums.size(); ++c)
          sums[c] += factor * static_cast<double>(row[c]);
      }
      for (std::int64_t c = 0; c < m_.columns; ++c) finish(r, c, sums[idx(c)]);
    }
    if (m_.epilogue == Epilogue::bias_gradient)
      for (std::size_t at = 0; at < a.size(); ++at)
        bias_gradient_[at / idx(m_.depth)] += static_cast<double>(a[at]);
    if (writes_bias(m_.epilogue))
      for (std::size_t i = 0; i < bias_gradient_.size(); ++i)
        store(buffers_.bias, m_.dtype, static_cast<std::int64_t>(i),
              static_cast<float>(bias_gradient_[i]));
  }

 private:
  void finish(std::int64_t row, std::int64_t column, double value) {
    if (reads_bias(m_.epilogue))
      value += static_cast<double>(load(buffers_.bias, m_.dtype, column));
    const bool is_relu =
        m_.epilogue == Epilogue::relu_bias || m_.epilogue == Epilogue::relu_bias_aux;
    if (m_.epilogue == Epilogue::relu_bias_aux) set_bit(row, column, value > 0);
    if (reads_bits(m_.epilogue) && !bit(row, column)) value = 0;
    if (is_relu && value <= 0) value = 0;  // NaN stays
    const std::int64_t at = row * m_.aux_pitch + column;
    if (m_.epilogue == Epilogue::gelu_bias_aux)
      store(buffers_.aux, m_.dtype, at, static_cast<float>(value));
    if (m_.epilogue == Epilogue::gelu_bias || m_.epilogue == Epilogue::gelu_bias_aux)
      value = gelu(value);
    if (m_.epilogue == Epilogue::dgelu_bias_gradient)
      value *= gelu_slope(static_cast<double>(load(buffers_.aux, m_.dtype, at)));
    if (m_.epilogue == Epilogue::drelu_bias_gradient ||
        m_.epilogue == Epilogue::dgelu_bias_gradient)
      bias_gradient_[idx(column)] += value;
    store(buffers_.d, m_.dtype, row * m_.pitch_d + column, static_cast<float>(value));
  }

  // The order of the bits is private to the library; only this file reads it.
  std::byte& byte_of(std::int64_t row, std::int64_t column) const {
    return static_cast<std::byte*>(buffers_.aux)[(row * m_.aux_pitch + column) / 8];
  }
  bool bit(std::int64_t row, std::int64_t column) const {
    return (byte_of(row, column) & std::byte{1} << (column % 8)) != std::byte{0};
  }
  void set_bit(std::int64_t row, std::int64_t column, bool value) {
    std::byte& byte = byte_of(row, column);
    const std::byte mask = std::byte{1} << (column % 8);
    byte = value ? byte | mask : byte & ~mask;
  }

  const Matmul& m_;
  MatmulBuffers buffers_;
  std::vector<double> bias_gradient_;
};

class EmulatedPlan final : public MatmulPlan {
 public:
  EmulatedPlan(const Matmul& matmul, std::string name, bool has_device)
      : matmul_(matmul), name_(std::move(name)), has_device_(has_device) {}
  std::size_t workspace_bytes() const override { return workspace_need; }
  std::string implementation() const override {
    return has_device_ ? "emulated loops" : "chosen on the device";
  }
  void execute(CudaStream& stream, const MatmulBuffers& buffers, void* workspace) const override {
    if (!has_device_) fail<Error>("{}: planned without a device, so not to be run", name_);
    check_buffers(matmul_, name_, buffers, workspace);
    const auto run = [matmul = matmul_, buffers, workspace] {
      std::memset(workspace, 0xff, workspace_need);  // everything else there becomes NaN
      Run(matmul, buffers)();
    };
    check(fake_cuda::enqueue(stream.handle(), name_, run), name_.c_str());
  }

 private:
  Matmul matmul_;
  std::string name_;
  bool has_device_;
};

class EmulatedLibrary final : public MatmulLibrary {
 public:
  explicit EmulatedLibrary(const Settings& settings) : settings_(settings) {}
  std::unique_ptr<MatmulPlan> plan(const Matmul& matmul, const std::string& name) override {
    check_matmul(matmul, name);
    if (has_no_algorithm(matmul))
      fail<DeviceError>("{}: no algorithm writes an aux of {} row(s) here, or applies it", name,
                        matmul.rows);
    if (workspace_need > settings_.workspace_cap)
      fail<DeviceError>("{}: it needs {} bytes of workspace, and {} are allowed", name,
                        workspace_need, settings_.workspace_cap);
    return std::make_unique<EmulatedPlan>(matmul, name, settings_.has_device());
  }
  std::string version() const override { return "emulated cuBLASLt"; }

 private:
  Settings settings_;
};

}  // namespace

std::unique_ptr<MatmulLibrary> open_matmul_library(const Settings& settings) {
  return std::make_unique<EmulatedLibrary>(settings);
}

}  // namespace warpstep::cuda
