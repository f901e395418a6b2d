// How the CUDA backend stores values: rows of channels (NHWC), whose innermost axis is rounded up
// to 16 bytes of elements, so that every kernel moves whole vectors and tensor cores get the
// alignment they need: in 16 bits 3 channels of an image become 8, and 10 classes become 16.
// Long rows that need padding, GPT-2's 50257 logits for one, are rounded up to 128 bytes: with
// 50264 of them every second row would begin in the middle of a memory sector of 32 bytes. Weights
// are padded to match their layer's input and output. The padding is zero and stays zero: zero
// weights give zero channels, whose gradients are zero. Reshaped values and those of convolutions
// in groups must be plain: a Reorder, a visible call, converts them.
#include <algorithm>
#include <map>

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

Layout layout_of(const Type& type, const Shape& stored) {
  return {.tag = stored == type.shape ? "" : stored.text(),
          .bytes = Type{type.dtype, stored}.bytes(),
          .native = std::make_shared<Shape>(stored)};
}

Shape with_last(const Shape& shape, std::int64_t last) {
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  extents.back() = last;
  return Shape(extents);
}

// Elements per 16 bytes in the narrowest dtype that the graph computes in: all sections of the
// store have the same padding. Moments do not count: the step of an evaluation has none, and both
// use one store.
std::int64_t vector_elements(const Graph& graph) {
  for (const Node& node : graph.nodes)
    for (const auto* ids : {&node.in, &node.out})
      for (const int id : *ids)
        if (const Value& value = graph.value(id); value.role != Role::moment &&
                                                  is_float(value.type.dtype) &&
                                                  size_bytes(value.type.dtype) == 2)
          return 8;
  return 4;
}

class LayoutPass {
 public:
  explicit LayoutPass(Graph& graph) : graph_(graph), vector_(vector_elements(graph)) {}

  void run() {
    for (Value& value : graph_.values) {
      fixed_.push_back(value.layout.bytes > 0);
      if (value.layout.bytes == 0) value.layout = layout_of(value.type, value.type.shape);
    }
    std::vector<Node> nodes;
    nodes.swap(graph_.nodes);
    for (Node node : nodes) {
      if (!std::holds_alternative<Upload>(node.op)) upload_inputs(node);
      std::visit([&](const auto& op) { place(op, node); }, node.op);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  Shape stored(int id) const { return stored_shape(graph_.value(id)); }
  Shape logical(int id) const { return graph_.value(id).type.shape; }
  Shape padded(int id) const { return with_last(logical(id), round_up(logical(id).back())); }
  // A long row of whole vectors stays as it is: with padding its reshape would need a Reorder.
  std::int64_t round_up(std::int64_t n) const {
    const std::int64_t to = n > 4096 && n % vector_ != 0 ? 8 * vector_ : vector_;
    return (n + to - 1) / to * to;
  }
  void store(int id, const Shape& shape) {
    graph_.value(id).layout = layout_of(graph_.value(id).type, shape);
  }
  void store_like(int id, int other) {  // of one logical shape, up to the dtype
    store(id, with_last(logical(id), stored(other).back()));
  }

  // A parameter with its gradient, moments and copies.
  void store_parameter(int id, const Shape& shape) {
    const int p = graph_.value(id).owner;
    if (p < 0) return;
    for (std::size_t v = 0; v < graph_.values.size(); ++v)  // parts of the gradient
      if (graph_.values[v].owner == p &&
          (graph_.values[v].role == Role::activation || graph_.values[v].role == Role::gradient))
        store(static_cast<int>(v), fixed_[idx(id)] ? stored(id) : shape);
    if (fixed_[idx(id)]) return;
    const Parameter& parameter = graph_.parameters[idx(p)];
    for (const int kept : {parameter.value, parameter.gradient, parameter.copy})
      if (kept >= 0) store(kept, shape);
    for (const int moment : parameter.moments) store(moment, shape);
  }

  void upload_inputs(Node& node) {
    for (int& id : node.in) {
      if (graph_.value(id).role != Role::input) continue;
      int& uploaded = uploads_[id];
      if (uploaded == 0) uploaded = insert(Upload{}, id, "uploaded", logical(id), node);
      id = uploaded;
    }
  }

  void want(Node& node, int i, const Shape& shape) {
    int& id = node.in[idx(i)];
    if (stored(id) == shape) return;
    int& made = reorders_[{id, shape.text()}];
    if (made == 0) made = insert(Reorder{}, id, shape.text(), shape, node);
    id = made;
  }

  int insert(AnyOp op, int in, const std::string& suffix, const Shape& shape, const Node& before) {
    Value value = graph_.value(in);
    const Role role = is_float(value.type.dtype) ? Role::activation : Role::index;
    const int out = graph_.add_value(value.type, role, value.name + " " + suffix);
    fixed_.push_back(false);
    store(out, shape);
    graph_.nodes.push_back({.op = std::move(op),
                            .in = {in},
                            .out = {out},
                            .scope = value.role == Role::input ? value.name : before.scope,
                            .phase = before.phase,
                            .where = before.where});
    return out;
  }

  // The shapes that the ops need. Operands of the shape of the input OpTraits::layout_of are stored
  // like it; other ops that are not listed accept any input and write plain values.
  template <class Op>
  void place(const Op&, Node& node) {
    if constexpr (Op::traits.layout_of != own_layout) place_like(Op::traits.layout_of, node);
  }
  void place_like(int leader, Node& node) {
    if (graph_.value(node.out[0]).owner >= 0) return;  // all stored as the parameter
    const int like = node.in[idx(leader)];
    for (int i = 0; i < static_cast<int>(node.in.size()); ++i)
      if (i != leader && logical(node.in[idx(i)]) == logical(like)) want(node, i, stored(like));
    store_like(node.out[0], like);
    store_sums(node);
  }

  void place(const Normalize&, Node& node) { store(node.out[0], padded(node.out[0])); }
  void place(const Augment&, Node& node) { store(node.out[0], padded(node.out[0])); }

  void place(const Conv& op, Node& node) {
    const bool pad = op.groups == 1;
    want(node, 0, pad ? padded(node.in[0]) : logical(node.in[0]));
    const Shape w = logical(node.in[1]);
    const std::int64_t out = pad ? round_up(op.out) : op.out;
    const std::int64_t in = pad ? stored(node.in[0]).back() : w.back();
    store_parameter(node.in[1], {out, w[1], w[2], in});
    if (op.bias) store_parameter(node.in[2], {out});
    for (const int id : node.out) store(id, with_last(logical(id), out));
  }
  void place(const ConvDataGrad& op, Node& node) {
    const Shape w = stored(node.in[1]);
    want(node, 0, with_last(logical(node.in[0]), w[0]));
    store(node.out[0], with_last(logical(node.out[0]), w[3] * op.conv.groups));
    if (op.relu) want(node, static_cast<int>(node.in.size()) - 1, stored(node.out[0]));
  }
  void place(const ConvWeightGrad& op, Node& node) {
    const bool pad = op.conv.groups == 1;
    for (int i = 0; i < 2; ++i)
      want(node, i, pad ? padded(node.in[idx(i)]) : logical(node.in[idx(i)]));
  }

  void place(const Linear& op, Node& node) {
    want(node, 0, padded(node.in[0]));
    store_parameter(node.in[1], {round_up(op.out), stored(node.in[0]).back()});
    if (op.bias) store_parameter(node.in[2], {round_up(op.out)});
    store(node.out[0], padded(node.out[0]));
    if (op.keep) store(node.out[1], padded(node.out[1]));
  }
  void place(const LinearDataGrad& op, Node& node) {
    const Shape w = stored(node.in[1]);
    want(node, 0, with_last(logical(node.in[0]), w[0]));
    store(node.out[0], with_last(logical(node.out[0]), w[1]));
    if (op.relu) want(node, 3, stored(node.out[0]));
    if (op.gelu) want(node, 2, stored(node.out[0]));
    store_sums(node);
  }
  void place(const LinearWeightGrad&, Node& node) {
    want(node, 1, padded(node.in[1]));
    const Shape w = stored(node.out[0]);
    want(node, 0, with_last(logical(node.in[0]), w[1]));
  }

  // The column sums of the first output, if there are any; a parameter's gradient is stored as the
  // parameter is.
  void store_sums(const Node& node) {
    if (node.out.size() > 1 && graph_.value(node.out[1]).owner < 0)
      store(node.out[1], {stored(node.out[0]).back()});
  }

  void place(const MaxPool&, Node& node) {
    want(node, 0, padded(node.in[0]));
    for (const int out : node.out) store_like(out, node.in[0]);
  }
  void place(const MaxPoolGrad&, Node& node) {
    want(node, 0, with_last(logical(node.in[0]), stored(node.in[1]).back()));
    store_like(node.out[0], node.in[0]);
    store_sums(node);
  }

  void place(const AvgPool&, Node& node) {
    want(node, 0, padded(node.in[0]));
    store_like(node.out[0], node.in[0]);
  }
  void place(const AvgPoolGrad&, Node& node) {
    want(node, 0, padded(node.in[0]));
    store_like(node.out[0], node.in[0]);
  }

  // Parameters and per-channel values are padded like the images; buffers are plain.
  void place(const BatchNorm& op, Node& node) {
    want(node, 0, padded(node.in[0]));
    if (op.add) want(node, 5, stored(node.in[0]));
    const Shape channels{stored(node.in[0]).back()};
    for (const int i : {1, 2}) {
      store_parameter(node.in[idx(i)], channels);
      want(node, i, channels);
    }
    store_like(node.out[0], node.in[0]);
    for (std::size_t i = 1; i < node.out.size(); ++i) store(node.out[i], channels);
  }
  void place(const BatchNormGrad& op, Node& node) {
    want(node, 1, padded(node.in[1]));
    const Shape images = stored(node.in[1]), channels{images.back()};
    const int shortcut = static_cast<int>(op.shortcut_operand());
    store_parameter(node.in[2], channels);
    if (op.shortcut_norm) store_parameter(node.in[idx(shortcut + 1)], channels);
    for (int i = 0; i < static_cast<int>(node.in.size()); ++i)
      want(node, i, (i >= 2 && i <= 4) || i > shortcut ? channels : images);
    for (const std::size_t i : {0, 3})
      if (i < node.out.size()) store_like(node.out[i], node.in[1]);
    for (const std::size_t i : {1, 2, 4, 5})
      if (i < node.out.size() && graph_.value(node.out[i]).owner < 0) store(node.out[i], channels);
  }

  void place(const NormPool&, Node& node) {
    want(node, 0, padded(node.in[0]));
    const Shape channels{stored(node.in[0]).back()};
    for (const int i : {1, 2}) {
      store_parameter(node.in[idx(i)], channels);
      want(node, i, channels);
    }
    for (const std::size_t i : {0, 1}) store_like(node.out[i], node.in[0]);
    for (const std::size_t i : {2, 3}) store(node.out[i], channels);
  }
  void place(const NormPoolGrad&, Node& node) {
    want(node, 2, padded(node.in[2]));
    const Shape channels{stored(node.in[2]).back()};
    store_parameter(node.in[3], channels);
    for (const int i : {0, 1}) want(node, i, with_last(logical(node.in[idx(i)]), channels.back()));
    for (const int i : {3, 4, 5}) want(node, i, channels);
    store_like(node.out[0], node.in[2]);
    for (const std::size_t i : {1, 2})
      if (graph_.value(node.out[i]).owner < 0) store(node.out[i], channels);
  }

  // Gamma and beta are padded like the rows; there is a mean and a deviation for each row.
  void place(const LayerNorm& op, Node& node) {
    want(node, 0, padded(node.in[0]));
    if (op.add) want(node, op.bias ? 3 : 2, stored(node.in[0]));
    const Shape channels{stored(node.in[0]).back()};
    for (int i = 1; i <= (op.bias ? 2 : 1); ++i) {
      store_parameter(node.in[idx(i)], channels);
      want(node, i, channels);
    }
    store_like(node.out[0], node.in[0]);
    if (op.add) store_like(node.out[3], node.in[0]);
  }
  void place(const LayerNormGrad& op, Node& node) {
    want(node, 1, padded(node.in[1]));
    const Shape rows = stored(node.in[1]), channels{rows.back()};
    want(node, 0, rows);
    if (op.sum) want(node, 5, rows);
    store_parameter(node.in[2], channels);
    want(node, 2, channels);
    store_like(node.out[0], node.in[1]);
    for (std::size_t i = 1; i < node.out.size(); ++i)
      if (graph_.value(node.out[i]).owner < 0) store(node.out[i], channels);
  }

  // Tables of tokens and positions are padded like their rows of x. The table of tokens may have
  // more rows for a Linear that reads it, too, whichever comes first.
  void place(const Embed&, Node& node) {
    for (const int i : {2, 3}) {
      const int id = node.in[idx(i)];
      const Shape table{stored(id)[0], padded(id).back()};
      store_parameter(id, table);
      want(node, i, table);
    }
    store(node.out[0], padded(node.out[0]));
  }
  void place(const EmbedGrad& op, Node& node) {
    want(node, 0, padded(node.in[0]));
    for (const int out : node.out)
      if (graph_.value(out).owner < 0) store(out, padded(out));
    if (op.sum) want(node, 3, stored(node.out[0]));
  }

  void place(const Attention&, Node& node) {
    want(node, 0, padded(node.in[0]));
    store(node.out[0], padded(node.out[0]));
  }
  void place(const AttentionGrad&, Node& node) {
    for (const int i : {0, 1, 2}) want(node, i, padded(node.in[idx(i)]));
    store(node.out[0], padded(node.out[0]));
  }

  void place(const SoftmaxXent&, Node& node) {
    want(node, 0, padded(node.in[0]));
    if (node.out.size() > 2) store_like(node.out[2], node.in[0]);
  }
  void place(const LogSoftmaxGrad&, Node& node) { store(node.out[0], padded(node.out[0])); }

  void place(const Custom&, Node& node) {
    for (int i = 0; i < static_cast<int>(node.in.size()); ++i)
      want(node, i, logical(node.in[idx(i)]));
  }
  void place(const Reshape&, Node& node) { want(node, 0, logical(node.in[0])); }

  Graph& graph_;
  std::int64_t vector_;
  std::vector<bool> fixed_;  // values whose layout was chosen before
  std::map<int, int> uploads_;
  std::map<std::pair<int, std::string>, int> reorders_;
};

}  // namespace

const Shape& stored_shape(const Value& value) {
  return *static_cast<const Shape*>(value.layout.native.get());
}

void choose_layouts(Graph& graph) {
  LayoutPass(graph).run();
}

}  // namespace warpstep::cuda
