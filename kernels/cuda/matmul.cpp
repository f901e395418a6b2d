#include "kernels/cuda/matmul.h"

#include <fmt/format.h>

#include <array>

namespace warpstep::cuda {
namespace {

constexpr std::array epilogue_names{"none",
                                    "bias",
                                    "relu_bias",
                                    "relu_bias_aux",
                                    "bias_gradient",
                                    "drelu",
                                    "drelu_bias_gradient",
                                    "gelu_bias",
                                    "gelu_bias_aux",
                                    "dgelu_bias_gradient"};

}  // namespace

std::string Matmul::key() const {
  return fmt::format("{}[{}x{}x{}]a{}/{}b{}/{}d/{}:{}/{}", name(dtype), rows, columns, depth,
                     transpose_a ? "t" : "n", pitch_a, transpose_b ? "t" : "n", pitch_b, pitch_d,
                     epilogue_names[idx(static_cast<int>(epilogue))], aux_pitch);
}

bool Matmul::has_bias() const {
  return epilogue != Epilogue::none && epilogue != Epilogue::drelu;
}

bool Matmul::has_bit_aux() const {
  return epilogue == Epilogue::relu_bias_aux || epilogue == Epilogue::drelu ||
         epilogue == Epilogue::drelu_bias_gradient;
}

bool Matmul::has_gelu_aux() const {
  return epilogue == Epilogue::gelu_bias_aux || epilogue == Epilogue::dgelu_bias_gradient;
}

std::size_t Matmul::aux_bytes() const {
  const std::size_t elements = idx(rows * aux_pitch);
  return has_gelu_aux() ? elements * size_bytes(dtype) : has_bit_aux() ? elements / 8 : 0;
}

MatmulPlan::~MatmulPlan() = default;
MatmulLibrary::~MatmulLibrary() = default;

}  // namespace warpstep::cuda
