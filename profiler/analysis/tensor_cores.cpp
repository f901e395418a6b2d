#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "profiler/analysis/device.h"

namespace warpstep::profiler {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <std::size_t n>
bool has_any(std::string_view text, const std::array<std::string_view, n>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return has(text, part); });
}

// Names of the units themselves, of instructions, and of families that know no other way.
constexpr std::array<std::string_view, 24> units{
    "hmma",      "_imma",     "_dmma",      "hgmma",  "qgmma",     "igmma",
    "wgmma",     "wmma",      "tcgen05",    "utcmma", "mma_sync",  "mma.sync",
    "tensorop",  "tensor16x", "tensor8x",   "nvjet",  "warpgroup", "warp_specialized",
    "flash_fwd", "flash_bwd", "flash_attn", "fmha",   "xmma",      "sdpa_sm"};
// Older names that torch_tb_profiler lists besides. Its conv2d_c1_k1 is not one of them: that is a
// convolution of each channel by itself, without a product of matrices.
constexpr std::array<std::string_view, 3> older{"dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
                                                "conv1x1"};
// Parts of kernels of the same families that run on the ordinary units, and the steps around the
// product: conversions, reductions of partial sums.
constexpr std::array<std::string_view, 10> ordinary{
    "simt",       "_ffma",         "c1_k1",           "splitkreduce", "nchwtonhwc",
    "nhwctonchw", "splitk_reduce", "splitkv_combine", "dot_do_o",     "convert_dq"};

// Shapes of the instructions, as in s16816gemm and h884cudnn: a letter for the type summed in, then
// m, n and k.
bool has_instruction_shape(std::string_view text) {
  static constexpr std::array<std::string_view, 7> shapes{"884",   "1688",   "8816", "16816",
                                                          "16832", "161616", "8832"};
  static constexpr std::string_view types = "hsicd";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (!has(types, text.substr(i, 1))) continue;
    if (i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0) continue;
    std::size_t end = i + 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    const std::string_view digits = text.substr(i + 1, end - i - 1);
    if (std::find(shapes.begin(), shapes.end(), digits) != shapes.end()) return true;
  }
  return false;
}

}  // namespace

bool uses_tensor_cores(std::string_view kernel) {
  std::string text(kernel);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (has_any(text, ordinary)) return false;
  // Attention's kernels for devices before tensor cores.
  if (has(text, "fmha") && has(text, "_sm50")) return false;
  return has_any(text, units) || has_any(text, older) || has_instruction_shape(text);
}

}  // namespace warpstep::profiler
