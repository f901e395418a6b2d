#include "kernels/cuda/dnn.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "engine/core/error.h"

namespace warpstep::cuda::dnn {
namespace {

constexpr std::array direction_names{"forward", "data_grad", "weight_grad"};

// uids that the operation names; a relu has no second operand, whatever its b says.
std::vector<std::int64_t> uids_of(const Operation& operation) {
  if (const auto* conv = std::get_if<Convolution>(&operation)) return {conv->x, conv->w, conv->y};
  const auto& pointwise = std::get<Pointwise>(operation);
  if (pointwise.mode == Pointwise::Mode::relu) return {pointwise.x, pointwise.y};
  return {pointwise.x, pointwise.b, pointwise.y};
}

std::string text(const Tensor& tensor) {
  return fmt::format("{}:{}{}[{}]/[{}]", tensor.uid, name(tensor.dtype),
                     tensor.is_virtual ? "~" : "", fmt::join(tensor.dims, ","),
                     fmt::join(tensor.strides, ","));
}

std::string text(const Operation& operation) {
  const std::string operands = fmt::format("({})", fmt::join(uids_of(operation), ","));
  if (const auto* conv = std::get_if<Convolution>(&operation)) {
    return fmt::format("{}{}p{}s{}d{}", direction_names[idx(static_cast<int>(conv->direction))],
                       operands, conv->padding, conv->stride, conv->dilation);
  }
  const bool is_relu = std::get<Pointwise>(operation).mode == Pointwise::Mode::relu;
  return (is_relu ? "relu" : "add") + operands;
}

}  // namespace

Tensor nhwc(std::int64_t uid, DType dtype, std::int64_t n, std::int64_t h, std::int64_t w,
            std::int64_t c) {
  return {.uid = uid, .dtype = dtype, .dims = {n, c, h, w}, .strides = {h * w * c, 1, w * c, c}};
}

Tensor virtual_like(const Tensor& other, std::int64_t uid, DType dtype) {
  Tensor tensor = other;
  tensor.uid = uid;
  tensor.dtype = dtype;
  tensor.is_virtual = true;
  return tensor;
}

const Tensor& Graph::tensor(std::int64_t uid) const {
  const auto found = std::ranges::find(tensors, uid, &Tensor::uid);
  if (found != tensors.end()) return *found;
  fail<Error>("{}: no tensor of the graph has uid {}; there are {}", name, uid, tensors.size());
}

std::string Graph::key() const {
  std::vector<std::int64_t> uids;
  for (const Operation& operation : operations)
    std::ranges::copy(uids_of(operation), std::back_inserter(uids));
  std::ranges::sort(uids);
  uids.erase(std::unique(uids.begin(), uids.end()), uids.end());

  std::vector<std::string> parts;
  for (const std::int64_t uid : uids) parts.push_back(text(tensor(uid)));
  for (const Operation& operation : operations) parts.push_back(text(operation));
  return fmt::format("{}", fmt::join(parts, ";"));
}

Plan::~Plan() = default;
Library::~Library() = default;

}  // namespace warpstep::cuda::dnn
