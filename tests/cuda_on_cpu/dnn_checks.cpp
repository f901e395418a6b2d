#include "tests/cuda_on_cpu/dnn_checks.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/elements.h"

namespace warpstep::cuda::dnn {
namespace {

// The elements of a tensor lie at different places, and its outermost axis is one of them.
void check_tensor(const Graph& graph, const Tensor& tensor) {
  const auto who = graph.name + ": tensor " + std::to_string(tensor.uid);
  if (!is_float(tensor.dtype)) fail<Error>("{} is {}", who, name(tensor.dtype));
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis) {
    if (tensor.dims[axis] <= 0) fail<Error>("{}: axis {} is {}", who, axis, tensor.dims[axis]);
    if (tensor.strides[axis] <= 0)
      fail<Error>("{}: the stride of axis {} is {}", who, axis, tensor.strides[axis]);
    if (tensor.dims[axis] > 1) axes.emplace_back(tensor.strides[axis], tensor.dims[axis]);
  }
  std::ranges::sort(axes);
  std::int64_t within = 1;  // elements that the axes so far reach over
  for (const auto& [stride, extent] : axes) {
    if (stride < within)
      fail<Error>("{}: a stride of {} overlaps {} elements", who, stride, within);
    within = stride * extent;
  }
}

void check_convolution(const Graph& graph, const Convolution& conv) {
  const Tensor &x = graph.tensor(conv.x), &w = graph.tensor(conv.w), &y = graph.tensor(conv.y);
  if (conv.stride < 1 || conv.dilation < 1 || conv.padding < 0)
    fail<Error>("{}: stride {}, dilation {}, padding {}", graph.name, conv.stride, conv.dilation,
                conv.padding);
  const std::int64_t groups = x.dims[1] / w.dims[1];
  if (x.dims[1] % w.dims[1] != 0 || w.dims[0] % groups != 0 || w.dims[0] != y.dims[1])
    fail<Error>("{}: {} channels to {} by a weight of {} x {}", graph.name, x.dims[1], y.dims[1],
                w.dims[0], w.dims[1]);
  if (x.dims[0] != y.dims[0])
    fail<Error>("{}: {} images become {}", graph.name, x.dims[0], y.dims[0]);
  for (const std::size_t axis : {2U, 3U}) {
    const std::int64_t span = conv.dilation * (w.dims[axis] - 1) + 1;
    const std::int64_t room = x.dims[axis] + 2 * conv.padding - span;
    if (room < 0 || room / conv.stride + 1 != y.dims[axis])
      fail<Error>("{}: axis {} of {} becomes {} by a kernel of {}", graph.name, axis, x.dims[axis],
                  y.dims[axis], w.dims[axis]);
  }
}

void check_operation(const Graph& graph, const Convolution& conv) {
  check_convolution(graph, conv);
}

void check_operation(const Graph& graph, const Pointwise& pointwise) {
  const Tensor &x = graph.tensor(pointwise.x), &y = graph.tensor(pointwise.y);
  if (x.dims != y.dims) fail<Error>("{}: a pointwise result of another shape", graph.name);
  if (pointwise.mode == Pointwise::Mode::relu) return;
  const Tensor& b = graph.tensor(pointwise.b);
  for (std::size_t axis = 0; axis < y.dims.size(); ++axis)
    if (b.dims[axis] != 1 && b.dims[axis] != y.dims[axis])
      fail<Error>("{}: b cannot be broadcast on axis {}", graph.name, axis);
}

// One f32 per channel of `images`.
void check_channels(const Graph& graph, std::int64_t uid, const Tensor& images) {
  const Tensor& channels = graph.tensor(uid);
  if (channels.dtype != DType::f32 || channels.dims != Extents{1, images.dims[1], 1, 1})
    fail<Error>("{}: tensor {} is not one f32 per channel of tensor {}", graph.name, uid,
                images.uid);
}

void check_operation(const Graph& graph, const ChannelSums& sums) {
  for (const std::int64_t uid : {sums.sum, sums.squares})
    check_channels(graph, uid, graph.tensor(sums.x));
}

void check_operation(const Graph& graph, const NormGradSums& sums) {
  const Tensor& x = graph.tensor(sums.x);
  if (graph.tensor(sums.d_y).dims != x.dims)
    fail<Error>("{}: a gradient of another shape than its images", graph.name);
  for (const std::int64_t uid : {sums.mean, sums.inv_std, sums.scale, sums.d_scale, sums.d_bias,
                                 sums.by_d_y, sums.by_x, sums.constant})
    check_channels(graph, uid, x);
}

void check_operation(const Graph& graph, const Attention& op) {
  const Tensor& qkv = graph.tensor(op.qkv);
  const auto& [batch, heads, length, features] = qkv.dims;
  const Extents of_heads{batch, heads / 3, length, features};
  const auto require = [&](std::int64_t uid, DType dtype, const Extents& dims) {
    const Tensor& tensor = graph.tensor(uid);
    if (tensor.dtype != dtype || tensor.dims != dims)
      fail<Error>("{}: tensor {} does not fit an attention of {} heads", graph.name, uid,
                  heads / 3);
  };
  if (graph.operations.size() != 1 || heads % 3 != 0 || qkv.strides[3] != 1 ||
      qkv.strides[1] != features)
    fail<Error>("{}: an attention of {} heads of {}, {} apart, in a graph of {} operations",
                graph.name, heads, features, qkv.strides[1], graph.operations.size());
  require(op.o, qkv.dtype, of_heads);
  require(op.statistics, DType::f32, {batch, heads / 3, length, 1});
  if (op.direction == Attention::Direction::forward) return;
  require(op.d_o, qkv.dtype, of_heads);
  require(op.d_qkv, qkv.dtype, qkv.dims);
  if (op.d_q_sums != 0) require(op.d_q_sums, DType::f32, of_heads);
}

Piece piece_of(const Tensor& tensor, const void* address) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis)
    last += (tensor.dims[axis] - 1) * tensor.strides[axis];
  return {"tensor " + std::to_string(tensor.uid), address,
          idx(last + 1) * size_bytes(tensor.dtype)};
}

}  // namespace

void check_graph(const Graph& graph) {
  if (graph.operations.empty()) fail<Error>("{}: no operations", graph.name);
  std::set<std::int64_t> uids, written, used;
  for (const Tensor& tensor : graph.tensors) {
    if (!uids.insert(tensor.uid).second)
      fail<Error>("{}: two tensors have uid {}", graph.name, tensor.uid);
    check_tensor(graph, tensor);
  }
  for (const Operation& operation : graph.operations) {
    for (const std::int64_t uid : read_by(operation)) {
      used.insert(uid);
      if (graph.tensor(uid).is_virtual && !written.contains(uid))
        fail<Error>("{}: virtual tensor {} is read before it is written", graph.name, uid);
    }
    for (const std::int64_t uid : written_by(operation)) {
      used.insert(uid);
      if (!written.insert(uid).second)
        fail<Error>("{}: tensor {} is written twice", graph.name, uid);
    }
    std::visit([&](const auto& op) { check_operation(graph, op); }, operation);
  }
  for (const std::int64_t uid : written_by(graph.operations.back()))
    if (graph.tensor(uid).is_virtual)
      fail<Error>("{}: the last operation's result is virtual", graph.name);
  for (const std::int64_t uid : uids)
    if (!used.contains(uid)) fail<Error>("{}: no operation uses tensor {}", graph.name, uid);
}

void check_call(const Graph& graph, std::span<const Binding> bindings, const void* workspace,
                std::size_t workspace_bytes) {
  std::set<std::int64_t> results, bound;
  for (const Operation& operation : graph.operations)
    for (const std::int64_t uid : written_by(operation)) results.insert(uid);
  std::vector<Piece> read{{"the workspace", workspace, workspace_bytes}}, written;
  require_aligned(graph.name, read.front());
  for (const auto& [uid, address] : bindings) {
    const Tensor& tensor = graph.tensor(uid);
    if (tensor.is_virtual || !bound.insert(uid).second)
      fail<Error>("{}: tensor {} is bound twice, or virtual", graph.name, uid);
    const Piece piece = piece_of(tensor, address);
    require_aligned(graph.name, piece);
    // The workspace is written, too.
    if (!results.contains(uid)) require_apart(graph.name, read.front(), piece);
    (results.contains(uid) ? written : read).push_back(piece);
  }
  for (const Tensor& tensor : graph.tensors)
    if (!tensor.is_virtual && !bound.contains(tensor.uid))
      fail<Error>("{}: tensor {} is not bound", graph.name, tensor.uid);
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (const Piece& other : read) require_apart(graph.name, written[i], other);
    for (std::size_t j = 0; j < i; ++j) require_apart(graph.name, written[i], written[j]);
  }
}

}  // namespace warpstep::cuda::dnn
