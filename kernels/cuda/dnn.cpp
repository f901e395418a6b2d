#include "kernels/cuda/dnn.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "engine/core/error.h"

namespace warpstep::cuda::dnn {
namespace {

constexpr std::array direction_names{"forward", "data_grad", "weight_grad"};

constexpr std::array mode_names{"add", "subtract", "multiply", "relu", "relu_grad"};

using Uids = std::vector<std::int64_t>;

// The tensors that each operation reads, then those that it writes. A relu has no second operand:
// its b is ignored.
std::pair<Uids, Uids> operands(const Convolution& conv) {
  switch (conv.direction) {
    case Convolution::Direction::forward: break;
    case Convolution::Direction::data_grad: return {{conv.y, conv.w}, {conv.x}};
    case Convolution::Direction::weight_grad: return {{conv.y, conv.x}, {conv.w}};
  }
  return {{conv.x, conv.w}, {conv.y}};
}
std::pair<Uids, Uids> operands(const Pointwise& op) {
  if (op.mode == Pointwise::Mode::relu) return {{op.x}, {op.y}};
  return {{op.x, op.b}, {op.y}};
}
std::pair<Uids, Uids> operands(const ChannelSums& op) {
  return {{op.x}, {op.sum, op.squares}};
}
std::pair<Uids, Uids> operands(const NormGradSums& op) {
  return {{op.x, op.d_y, op.mean, op.inv_std, op.scale},
          {op.d_scale, op.d_bias, op.by_d_y, op.by_x, op.constant}};
}
std::pair<Uids, Uids> operands(const Attention& op) {
  if (op.direction == Attention::Direction::forward) return {{op.qkv}, {op.o, op.statistics}};
  Uids written{op.d_qkv};
  if (op.d_q_sums != 0) written.push_back(op.d_q_sums);
  return {{op.d_o, op.qkv, op.o, op.statistics}, written};
}
std::pair<Uids, Uids> operands(const Operation& operation) {
  return std::visit([](const auto& op) { return operands(op); }, operation);
}

std::string attributes(const Convolution& conv) {
  return fmt::format("{}p{}s{}d{}", direction_names[idx(static_cast<int>(conv.direction))],
                     conv.padding, conv.stride, conv.dilation);
}
std::string attributes(const Pointwise& op) {
  return mode_names[idx(static_cast<int>(op.mode))];
}
std::string attributes(const ChannelSums&) {
  return "channel_sums";
}
std::string attributes(const NormGradSums&) {
  return "norm_grad_sums";
}

std::string attributes(const Attention& op) {
  return fmt::format("{}{}",
                     op.direction == Attention::Direction::forward ? "attention" : "attention_grad",
                     op.causal ? "_causal" : "");
}

std::string text(const Tensor& tensor) {
  return fmt::format("{}:{}{}[{}]/[{}]", tensor.uid, name(tensor.dtype),
                     tensor.is_virtual ? "~" : "", fmt::join(tensor.dims, ","),
                     fmt::join(tensor.strides, ","));
}

std::string text(const Operation& operation) {
  const auto [reads, writes] = operands(operation);
  return fmt::format("{}({}|{})",
                     std::visit([](const auto& op) { return attributes(op); }, operation),
                     fmt::join(reads, ","), fmt::join(writes, ","));
}

}  // namespace

Uids read_by(const Operation& operation) {
  return operands(operation).first;
}

Uids written_by(const Operation& operation) {
  return operands(operation).second;
}

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
    for (const Uids& named : {read_by(operation), written_by(operation)})
      std::ranges::copy(named, std::back_inserter(uids));
  std::ranges::sort(uids);
  uids.erase(std::unique(uids.begin(), uids.end()), uids.end());

  std::vector<std::string> parts;
  for (const std::int64_t uid : uids) parts.push_back(text(tensor(uid)));
  for (const Operation& operation : operations) parts.push_back(text(operation));
  return fmt::format("{}", fmt::join(parts, ";"));
}

const Attention* attention_of(const Graph& graph) {
  return graph.operations.size() == 1 ? std::get_if<Attention>(&graph.operations[0]) : nullptr;
}

bool adds_in_any_order(const Graph& graph) {
  return std::ranges::any_of(graph.operations, [](const Operation& operation) {
    const auto* const attention = std::get_if<Attention>(&operation);
    return attention != nullptr ? attention->d_q_sums != 0
                                : std::holds_alternative<ChannelSums>(operation) ||
                                      std::holds_alternative<NormGradSums>(operation);
  });
}

// Read off the plans of cuDNN 9.19, whose tiles have up to 128 positions: a number for each row of
// d_o o; with a fixed order the scores' gradients in 16 bits, else, but for engines of Hopper and
// the first Blackwell, sums of the queries' gradients beside those that the caller has.
std::size_t attention_workspace(const Graph& graph, int compute_capability) {
  constexpr std::size_t apart = 4096;  // parts are aligned
  const Attention& attention = *attention_of(graph);
  if (attention.direction == Attention::Direction::forward) return apart;
  const Tensor& o = graph.tensor(attention.o);
  const auto round_up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  const std::int64_t length = round_up(o.dims[2], 128);
  const std::int64_t rows = o.dims[0] * o.dims[1] * length;
  const int generation = compute_capability / 10;
  std::int64_t bytes = rows * 4;
  if (attention.d_q_sums == 0)
    bytes += rows * length * 2;
  else if (generation != 9 && generation != 10)
    bytes += rows * round_up(o.dims[3], 32) * 4;
  return idx(bytes) + apart;
}

Plan::~Plan() = default;
Library::~Library() = default;

}  // namespace warpstep::cuda::dnn
