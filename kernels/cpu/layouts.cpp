// How the CPU backend stores values. Two rules:
//   images   rows of channels (nhwc) until a pool widens them to blocks of channels (nChw16c),
//   which the fastest
//            convolutions want; layout changes ride on pools, which read and write any layout, not
//            on reorders
//   weights  as the weight gradient wants them, so that the optimiser works on what the gradient is
//   written to; a
//            convolution that wants them otherwise gets a visible Reorder
#include <algorithm>
#include <map>

#include "kernels/conv/eight_channels.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

bool is_conv(const AnyOp& op) {
  return std::holds_alternative<Conv>(op) || std::holds_alternative<ConvDataGrad>(op) ||
         std::holds_alternative<ConvWeightGrad>(op);
}

class LayoutPass {
 public:
  LayoutPass(Graph& graph, const Context& context) : graph_(graph), context_(context) {}

  void run() {
    std::vector<Node> nodes;
    nodes.swap(graph_.nodes);
    find_users(nodes);
    for (Value& value : graph_.values) {
      given_.push_back(value.layout.bytes > 0);
      if (value.layout.bytes == 0) value.layout = layout(value, plain_descriptor(value.type));
    }
    fix_weights(nodes);
    for (Node node : nodes) {
      place(node);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  void find_users(const std::vector<Node>& nodes) {
    users_.resize(graph_.values.size());
    for (const Node& node : nodes)
      for (const int id : node.in) users_[idx(id)].push_back(&node.op);
  }

  bool blocked(int id) const { return !graph_.value(id).layout.tag.empty(); }
  void store_blocked(int id) {
    Value& value = graph_.value(id);
    value.layout = layout(value, blocked_descriptor(value.type, context_.block));
  }
  void store_like(int id, int other) {
    if (blocked(other)) store_blocked(id);
  }

  bool fills_blocks(std::int64_t channels) const {
    return context_.block > 0 && channels % context_.block == 0;
  }

  // All users are convolutions that gain from blocks of channels.
  bool wants_blocks(int id) const {
    const Type& type = graph_.value(id).type;
    if (type.shape.rank() != 4 || !fills_blocks(type.shape[3]) || users_[idx(id)].empty())
      return false;
    return std::all_of(users_[idx(id)].begin(), users_[idx(id)].end(), [&](const AnyOp* op) {
      if (const auto* conv = std::get_if<Conv>(op)) return fills_blocks(conv->out);
      return std::holds_alternative<ConvWeightGrad>(*op);
    });
  }

  // Input `i` of the node in the layout of value `other`.
  void match(Node& node, int i, int other) {
    int& in = node.in[idx(i)];
    in = reorder(in, layout(graph_.value(in), target(in, blocked(other))), node);
  }
  dnnl::memory::desc target(int id, bool block) const {
    const Type& type = graph_.value(id).type;
    return block ? blocked_descriptor(type, context_.block) : plain_descriptor(type);
  }

  int plain(const Node& node, int i) {
    const int id = node.in[idx(i)];
    return reorder(id, layout(graph_.value(id), target(id, false)), node);
  }

  int reorder(int id, const Layout& wanted, const Node& node) {
    if (graph_.value(id).layout.tag == wanted.tag) return id;
    int& made = reordered_[{id, wanted.tag}];
    if (made == 0) {
      Graph& g = graph_;
      const Value value = g.value(id);
      made = g.add_value(value.type, is_persistent(value.role) ? Role::activation : value.role,
                         value.name + " " + (wanted.tag.empty() ? "plain" : wanted.tag));
      g.value(made).layout = wanted;
      g.nodes.push_back({.op = Reorder{},
                         .in = {id},
                         .out = {made},
                         .scope = node.scope,
                         .phase = node.phase,
                         .where = node.where});
    }
    return made;
  }

  void place(Node& node) {
    if (is_conv(node.op))
      place_conv(node);
    else if (auto* pool = std::get_if<MaxPool>(&node.op); pool) {
      if (!blocked(node.out[0]) && wants_blocks(node.out[0]))
        store_blocked(node.out[0]), store_blocked(node.out[1]);
      pooled_.push_back({node.out[1], node.in[0]});
    } else if (std::holds_alternative<MaxPoolGrad>(node.op)) {
      for (const auto& [index, x] : pooled_)
        if (index == node.in[1]) store_like(node.out[0], x);
    } else if (is_view(node.op) || std::holds_alternative<Custom>(node.op)) {
      for (int i = 0; i < static_cast<int>(node.in.size()); ++i) node.in[idx(i)] = plain(node, i);
    } else if (!node.out.empty() && !node.in.empty()) {
      place_pointwise(node);
    }
  }

  void place_pointwise(Node& node) {
    const bool pointwise = std::holds_alternative<Relu>(node.op) ||
                           std::holds_alternative<ReluGrad>(node.op) ||
                           std::holds_alternative<Add>(node.op);
    if (!pointwise || graph_.value(node.out[0]).parameter >= 0) return;  // as the parameter is
    const int like = node.in.back();  // ReluGrad: y, in whose layout the layer's adjoint wants it
    for (int i = 0; i < static_cast<int>(node.in.size()); ++i) match(node, i, like);
    store_like(node.out[0], like);
  }

  ConvShapes shapes(const Conv& op, const Value& x, const Value& weight, const Value& z) const {
    return {op, x.type, weight.type, z.type, descriptor(x), descriptor(z), std::nullopt};
  }

  void place_conv(Node& node) {
    if (const auto* conv = std::get_if<Conv>(&node.op)) {
      if (!fills_blocks(conv->out)) node.in[0] = plain(node, 0);
      store_like(node.out[0], node.in[0]);
      const ConvShapes s = shapes(*conv, graph_.value(node.in[0]), graph_.value(node.in[1]),
                                  graph_.value(node.out[0]));
      use_weights(node, 1, s, ConvDirection::forward);
    } else if (const auto* grad = std::get_if<ConvDataGrad>(&node.op)) {
      store_like(node.out[0], node.in[0]);
      if (takes_eight_channels(grad->conv, graph_.value(node.out[0]), graph_.value(node.in[0]))) {
        node.in[1] = plain(node, 1);
        return;
      }
      const ConvShapes s = shapes(grad->conv, graph_.value(node.out[0]), graph_.value(node.in[1]),
                                  graph_.value(node.in[0]));
      use_weights(node, 1, s, ConvDirection::data);
    } else {
      match(node, 1, node.in[0]);
    }
  }

  void use_weights(Node& node, int i, const ConvShapes& s, ConvDirection direction) {
    const PrimitivePlan plan = plan_conv(context_.engine, s, direction, context_.exact_math);
    const Value& weight = graph_.value(node.in[idx(i)]);
    node.in[idx(i)] = reorder(node.in[idx(i)], layout(weight, plan.weights), node);
  }

  // Whether x of a convolution will be stored in blocks is known before its turn comes: it is a
  // pool's output that wants them, or follows such a one through convolutions and pointwise ops.
  void fix_weights(const std::vector<Node>& nodes) {
    std::vector<bool> block(graph_.values.size());
    for (const Node& node : nodes) {
      if (std::holds_alternative<MaxPool>(node.op))
        block[idx(node.out[0])] = wants_blocks(node.out[0]);
      if (const auto* conv = std::get_if<Conv>(&node.op))
        block[idx(node.out[0])] = block[idx(node.in[0])] && fills_blocks(conv->out);
      if (std::holds_alternative<Relu>(node.op) || std::holds_alternative<Add>(node.op))
        block[idx(node.out[0])] = block[idx(node.in.back())];
      const auto* conv = std::get_if<Conv>(&node.op);
      const int p = conv ? graph_.value(node.in[1]).parameter : -1;
      if (p < 0 || graph_.parameters[idx(p)].gradient < 0 || given_[idx(node.in[1])]) continue;
      const bool b = block[idx(node.out[0])];
      Value x = graph_.value(node.in[0]), z = graph_.value(node.out[0]);
      x.layout = layout(x, target(node.in[0], b));
      z.layout = layout(z, target(node.out[0], b));
      if (takes_eight_channels(*conv, x, z)) continue;  // plain
      Conv plain = *conv;
      plain.relu = false;
      const PrimitivePlan plan =
          plan_conv(context_.engine, shapes(plain, x, graph_.value(node.in[1]), z),
                    ConvDirection::weights, context_.exact_math);
      store_parameter(graph_.parameters[idx(p)], plan.weights);
    }
  }

  void store_parameter(const Parameter& parameter, const dnnl::memory::desc& md) {
    const Layout chosen = layout(graph_.value(parameter.value), md);
    graph_.value(parameter.value).layout = chosen;
    graph_.value(parameter.gradient).layout = chosen;
    for (const int moment : parameter.moments) graph_.value(moment).layout = chosen;
    for (Value& value : graph_.values)  // parts of the gradient
      if (value.role == Role::activation &&
          value.parameter == graph_.value(parameter.value).parameter)
        value.layout = chosen;
  }

  Graph& graph_;
  const Context& context_;
  std::vector<std::vector<const AnyOp*>> users_;
  std::vector<bool> given_;                  // layouts that were chosen before
  std::vector<std::pair<int, int>> pooled_;  // a pool's index and its x
  std::map<std::pair<int, std::string>, int> reordered_;
};

}  // namespace

void choose_layouts(Graph& graph, const Context& context) {
  LayoutPass(graph, context).run();
}

}  // namespace warpstep::cpu
