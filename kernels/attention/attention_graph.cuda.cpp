#include "kernels/attention/attention_graph.cuda.h"

namespace warpstep::cuda {
namespace {

// `heads` vectors of D in each of a sequence's rows of `pitch` elements.
dnn::Tensor heads_of(std::int64_t uid, DType dtype, const AttentionShape& shape, std::int64_t heads,
                     std::int64_t pitch) {
  return {.uid = uid,
          .dtype = dtype,
          .dims = {shape.sequences, heads, shape.length, shape.features},
          .strides = {shape.length * pitch, shape.features, pitch, 1}};
}

dnn::Graph graph_of(std::string name, const AttentionShape& shape, DType dtype) {
  return {.name = std::move(name),
          .tensors = {heads_of(AttentionUids::qkv, dtype, shape, 3 * shape.heads, shape.qkv_pitch),
                      heads_of(AttentionUids::o, dtype, shape, shape.heads, shape.o_pitch),
                      {.uid = AttentionUids::statistics,
                       .dtype = DType::f32,
                       .dims = {shape.sequences, shape.heads, shape.length, 1},
                       .strides = {shape.heads * shape.length, shape.length, 1, 1}}},
          .operations = {}};
}

}  // namespace

dnn::Graph attention_graph(std::string name, const AttentionShape& shape, DType dtype) {
  dnn::Graph graph = graph_of(std::move(name), shape, dtype);
  graph.operations.push_back(dnn::Attention{.causal = shape.causal,
                                            .qkv = AttentionUids::qkv,
                                            .o = AttentionUids::o,
                                            .statistics = AttentionUids::statistics});
  return graph;
}

dnn::Graph attention_gradient_graph(std::string name, const AttentionShape& shape, DType dtype,
                                    bool deterministic) {
  dnn::Graph graph = graph_of(std::move(name), shape, dtype);
  graph.tensors.push_back(heads_of(AttentionUids::d_o, dtype, shape, shape.heads, shape.o_pitch));
  graph.tensors.push_back(
      heads_of(AttentionUids::d_qkv, dtype, shape, 3 * shape.heads, shape.qkv_pitch));
  const std::int64_t head = shape.length * shape.features;
  if (!deterministic)
    graph.tensors.push_back({.uid = AttentionUids::d_q_sums,
                             .dtype = DType::f32,
                             .dims = graph.tensor(AttentionUids::o).dims,
                             .strides = {shape.heads * head, head, shape.features, 1}});
  graph.operations.push_back(
      dnn::Attention{.direction = dnn::Attention::Direction::backward,
                     .causal = shape.causal,
                     .qkv = AttentionUids::qkv,
                     .o = AttentionUids::o,
                     .statistics = AttentionUids::statistics,
                     .d_o = AttentionUids::d_o,
                     .d_qkv = AttentionUids::d_qkv,
                     .d_q_sums = deterministic ? 0 : AttentionUids::d_q_sums});
  return graph;
}

std::int64_t attention_piece(const AttentionShape& shape, DType dtype, const Settings& settings) {
  AttentionShape one = shape;
  one.sequences = 1;
  const bool adds = !settings.deterministic;
  const std::size_t planned = dnn::attention_workspace(
      attention_gradient_graph("", one, dtype, !adds), settings.compute_capability);
  const std::size_t sums = adds ? idx(shape.length * shape.channels()) * sizeof(float) : 0;
  const auto most = static_cast<std::int64_t>(settings.workspace_cap / (planned + sums));
  if (shape.sequences <= most) return shape.sequences;

  // A piece's statistics, of which a sequence has heads x T, begin at a multiple of 16 bytes.
  const std::int64_t step = shape.heads * shape.length % 4 == 0 ? 1 : 4;
  const std::int64_t largest = most / step * step;
  if (largest == 0) return 0;
  const std::int64_t fewest = (shape.sequences + largest - 1) / largest;
  // Equal pieces share a plan, which takes a second or more to make.
  for (std::int64_t pieces = fewest; 2 * pieces <= 3 * fewest; ++pieces)
    if (shape.sequences % pieces == 0 && shape.sequences / pieces % step == 0)
      return shape.sequences / pieces;
  const std::int64_t balanced = (shape.sequences + fewest - 1) / fewest;
  return (balanced + step - 1) / step * step;
}

}  // namespace warpstep::cuda
