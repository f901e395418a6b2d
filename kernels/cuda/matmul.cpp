#include "kernels/cuda/matmul.h"

#include <fmt/format.h>

#include <array>

namespace warpstep::cuda {
namespace {

constexpr std::array epilogue_names{"none",          "bias",  "relu_bias",          "relu_bias_aux",
                                    "bias_gradient", "drelu", "drelu_bias_gradient"};

}  // namespace

std::string Matmul::key() const {
  return fmt::format("{}[{}x{}x{}]a{}/{}b{}/{}d/{}:{}/{}", name(dtype), rows, columns, depth,
                     transpose_a ? "t" : "n", pitch_a, transpose_b ? "t" : "n", pitch_b, pitch_d,
                     epilogue_names[idx(static_cast<int>(epilogue))], aux_pitch);
}

MatmulPlan::~MatmulPlan() = default;
MatmulLibrary::~MatmulLibrary() = default;

}  // namespace warpstep::cuda
