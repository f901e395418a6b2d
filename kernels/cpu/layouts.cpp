// How the CPU backend stores values. Two rules:
//   images   rows of channels (nhwc) until a pool writes blocks of channels (nChw16c), which the
//            fastest convolutions need. Pools read and write any layout, so they change it without
//            a Reorder. If a batch norm follows the first convolution, that convolution writes
//            blocks, and they remain through norms, joins and convolutions to the end
//   weights  in the layout of the weight gradient, so that the optimiser works on both as they are;
//            a convolution that needs another layout gets a visible Reorder
// oneDNN's kernels depend on the CPU: an image is stored in blocks only if there are kernels for
// all of its users; a convolution without any is a product of plain matrices
// (kernels/conv/conv.cpu.h).
//
// Two stages: Planner decides which images of the forward half are stored in blocks; LayoutPass
// then sets the layout of every value, adjoints included, and inserts Reorders.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

using Users = std::vector<std::vector<const Node*>>;  // per value
Users users_of(const Graph& graph, const std::vector<Node>& nodes);

// Whether all images of the op have the layout of one of them.
bool keeps_layout(const AnyOp& op);

bool fills_blocks(const Context& context, std::int64_t channels);

struct BlockPlan {
  std::vector<bool> blocks;         // per value
  std::map<int, Layout> beginning;  // inputs of convolutions that begin blocks, with their layout
};
// Pools and a network's first convolution begin blocks if convolutions that gain from them follow.
BlockPlan plan_blocks(const Graph& graph, const std::vector<Node>& nodes, const Users& users,
                      const Context& context);

namespace {

bool reads_any_layout(const AnyOp& op) {
  return std::holds_alternative<AvgPool>(op) || std::holds_alternative<ConvWeightGrad>(op);
}

class Planner {
 public:
  Planner(const Graph& graph, const Users& users, const Context& context)
      : graph_(graph), users_(users), context_(context), wants_(graph.values.size()) {
    plan_.blocks.resize(graph.values.size());
  }

  BlockPlan plan(const std::vector<Node>& nodes) {
    std::vector<bool>& blocks = plan_.blocks;
    for (const Node& node : nodes) {
      if (node.out.empty() || node.in.empty()) continue;
      const bool in = blocks[idx(node.in[0])];
      if (const auto* conv = std::get_if<Conv>(&node.op))
        blocks[idx(node.out[0])] =
            !is_small(*conv, node) && (in ? suits_blocks(*conv, node) : begins(*conv, node));
      else if (std::holds_alternative<MaxPool>(node.op))
        blocks[idx(node.out[0])] = wants(node.out[0]);
      else if (const auto* pool = std::get_if<AvgPool>(&node.op))
        blocks[idx(node.out[0])] = in && pool->window > 0;
      else if (keeps_layout(node.op))
        blocks[idx(node.out[0])] = blocks[idx(node.in[idx(layout_of(node.op))])];
    }
    return std::move(plan_);
  }

 private:
  bool is_small(const Conv& op, const Node& node) const {
    return suits_small_maps(op, graph_.value(node.in[0]).type.shape,
                            graph_.value(node.out[0]).type.shape);
  }

  template <class Op>
  bool used_by(int id) const {
    return std::any_of(users_[idx(id)].begin(), users_[idx(id)].end(),
                       [](const Node* n) { return std::holds_alternative<Op>(n->op); });
  }

  // Whether blocks pay for this value: a convolution that gains from them uses it, directly or
  // after ops that keep or change the layout, and every user can read them.
  bool wants(int id) {
    std::optional<bool>& known = wants_[idx(id)];
    if (!known) known = ask_users(id);
    return *known;
  }
  bool ask_users(int id) {
    const Type& type = graph_.value(id).type;
    if (type.shape.rank() != 4 || !fills_blocks(context_, type.shape[3])) return false;
    bool gains = false;
    for (const Node* user : users_[idx(id)]) {
      if (const auto* conv = std::get_if<Conv>(&user->op)) {
        if (is_small(*conv, *user)) continue;
        if (!suits_blocks(*conv, *user)) return false;
        gains = true;
      } else if (keeps_layout(user->op) || std::holds_alternative<MaxPool>(user->op)) {
        gains = gains || wants(user->out[0]);
      } else if (!reads_any_layout(user->op)) {
        return false;
      }
    }
    return gains;
  }

  // Whether both images of a convolution fill blocks, and oneDNN has kernels for them in all
  // directions of the step.
  bool suits_blocks(const Conv& op, const Node& node) {
    if (!fills_blocks(context_, op.out)) return false;
    const Value &x = graph_.value(node.in[0]), &z = graph_.value(node.out[0]);
    std::vector<ConvDirection> directions{ConvDirection::forward};
    if (used_by<ConvDataGrad>(node.in[1])) directions.push_back(ConvDirection::data);
    if (used_by<ConvWeightGrad>(node.in[0])) directions.push_back(ConvDirection::weights);
    return computes(op, node, blocked_descriptor(x.type, context_.block),
                    blocked_descriptor(z.type, context_.block), directions);
  }

  bool computes(const Conv& op, const Node& node, const dnnl::memory::desc& x_md,
                const dnnl::memory::desc& z_md,
                const std::vector<ConvDirection>& directions) const {
    Conv plain = op;
    plain.relu = false;
    const Value &x = graph_.value(node.in[0]), &weight = graph_.value(node.in[1]),
                &z = graph_.value(node.out[0]);
    const ConvShapes shapes{plain, x.type, weight.type, z.type, x_md, z_md, std::nullopt};
    return std::all_of(directions.begin(), directions.end(), [&](ConvDirection direction) {
      return plan_conv(context_.engine, shapes, direction, context_.exact_math).has_value();
    });
  }

  // Whether a network's first convolution, of images with a few channels and before a batch norm,
  // begins blocks. oneDNN can only do that from planes of channels (nchw), not from rows.
  bool begins(const Conv& op, const Node& node) {
    const int weight = node.in[1], z = node.out[0];
    if (graph_.value(node.in[0]).type.shape[3] > 4 || used_by<ConvDataGrad>(weight) ||
        !used_by<BatchNorm>(z) || !wants(z))
      return false;
    const Value& x = graph_.value(node.in[0]);
    const dnnl::memory::desc planes = planes_descriptor(x.type);
    if (!computes(op, node, planes, blocked_descriptor(graph_.value(z).type, context_.block),
                  {ConvDirection::forward, ConvDirection::weights}))
      return false;
    plan_.beginning[node.in[0]] = layout(x, planes);
    return true;
  }

  const Graph& graph_;
  const Users& users_;
  const Context& context_;
  std::vector<std::optional<bool>> wants_;  // results of wants()
  BlockPlan plan_;
};

}  // namespace

Users users_of(const Graph& graph, const std::vector<Node>& nodes) {
  Users users(graph.values.size());
  for (const Node& node : nodes)
    for (const int id : node.in) users[idx(id)].push_back(&node);
  return users;
}

bool keeps_layout(const AnyOp& op) {
  return layout_of(op) != own_layout;
}

bool fills_blocks(const Context& context, std::int64_t channels) {
  return context.block > 0 && channels % context.block == 0;
}

BlockPlan plan_blocks(const Graph& graph, const std::vector<Node>& nodes, const Users& users,
                      const Context& context) {
  return Planner(graph, users, context).plan(nodes);
}

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
    users_ = users_of(graph_, nodes);
    for (Value& value : graph_.values) {
      given_.push_back(value.layout.bytes > 0);
      if (value.layout.bytes == 0) value.layout = layout(value, plain_descriptor(value.type));
    }
    plan_ = plan_blocks(graph_, nodes, users_, context_);
    fix_weights(nodes);
    for (Node node : nodes) {
      place(node);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  bool blocked(int id) const { return !graph_.value(id).layout.tag.empty(); }
  void store_blocked(int id) {
    Value& value = graph_.value(id);
    value.layout = layout(value, blocked_descriptor(value.type, context_.block));
  }
  void store_plain(int id) {
    Value& value = graph_.value(id);
    value.layout = layout(value, plain_descriptor(value.type));
  }
  void store_like(int id, int other) {
    if (blocked(other)) store_blocked(id);
  }

  // Reorders input `i` of the node to the layout of value `other`.
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
    if (is_conv(node.op)) {
      place_conv(node);
    } else if (std::holds_alternative<AvgPool>(node.op)) {
      place_planned(node);
    } else if (std::holds_alternative<MaxPool>(node.op)) {
      place_planned(node);
      pooled_.push_back({node.out[1], node.in[0]});
    } else if (std::holds_alternative<MaxPoolGrad>(node.op)) {
      for (const auto& [index, x] : pooled_)
        if (index == node.in[1]) store_like(node.out[0], x);
    } else if (std::holds_alternative<AvgPoolGrad>(node.op)) {
      if (const int like = forward_like(node.out[0]); like >= 0) store_like(node.out[0], like);
    } else if (is_view(node.op) || std::holds_alternative<Custom>(node.op)) {
      for (int i = 0; i < static_cast<int>(node.in.size()); ++i) node.in[idx(i)] = plain(node, i);
    } else if (keeps_layout(node.op)) {
      place_alike(node);
    }
  }

  void place_planned(const Node& node) {
    for (const int id : node.out)
      if (plan_.blocks[idx(node.out[0])]) store_blocked(id);
  }

  // Stores all images of the node in the leader's layout.
  void place_alike(Node& node) {
    if (graph_.value(node.out[0]).parameter >= 0) return;  // as the parameter is
    const int like = node.in[idx(layout_of(node.op))];
    const Shape shape = graph_.value(like).type.shape;  // a copy: reorders add values
    for (int i = 0; i < static_cast<int>(node.in.size()); ++i)
      if (graph_.value(node.in[idx(i)]).type.shape == shape) match(node, i, like);
    for (const int id : node.out)
      if (graph_.value(id).type.shape == shape) store_like(id, like);
  }

  // The value of the forward half whose layout the users of gradient `id` need; -1: any layout.
  int forward_like(int id) const {
    for (const Node* user : users_[idx(id)]) {
      if (std::holds_alternative<ConvWeightGrad>(user->op)) return user->in[0];
      if (!keeps_layout(user->op)) continue;
      if (kind(user->op) == OpKind::derived) return user->in[idx(layout_of(user->op))];
      return forward_like(user->out[0]);
    }
    return -1;
  }

  ConvShapes shapes(const Conv& op, const Value& x, const Value& weight, const Value& z) const {
    return {op, x.type, weight.type, z.type, descriptor(x), descriptor(z), std::nullopt};
  }

  // Makes a convolution on small maps, or its adjoint, plain; false if it is another one.
  bool place_small_map(Node& node) {
    const auto shape = [&](int id) -> const Shape& { return graph_.value(id).type.shape; };
    const auto* conv = std::get_if<Conv>(&node.op);
    const auto* data = std::get_if<ConvDataGrad>(&node.op);
    const auto* weight = std::get_if<ConvWeightGrad>(&node.op);
    const bool small = conv ? suits_small_maps(*conv, shape(node.in[0]), shape(node.out[0]))
                       : data
                           ? suits_small_maps(data->conv, shape(node.out[0]), shape(node.in[0]))
                           : suits_small_maps(weight->conv, shape(node.in[0]), shape(node.in[1]));
    if (!small) return false;
    for (const int i : {0, 1}) node.in[idx(i)] = plain(node, i);
    return true;
  }

  void place_conv(Node& node) {
    if (place_small_map(node)) return;
    if (const auto* conv = std::get_if<Conv>(&node.op))
      place_forward(node, *conv);
    else if (const auto* data = std::get_if<ConvDataGrad>(&node.op))
      place_data_grad(node, data->conv);
    else
      place_weight_grad(node, std::get<ConvWeightGrad>(node.op).conv);
  }

  void place_forward(Node& node, const Conv& conv) {
    if (!plan_.blocks[idx(node.out[0])])
      node.in[0] = plain(node, 0);
    else
      use_planes(node);
    place_planned(node);
    if (!use_weights(node, conv, node.in[0], node.out[0], ConvDirection::forward))
      node.in[1] = plain(node, 1);
  }

  void place_data_grad(Node& node, const Conv& conv) {
    store_like(node.out[0], node.in[0]);
    if (!takes_eight_channels(conv, graph_.value(node.out[0]), graph_.value(node.in[0]))) {
      if (use_weights(node, conv, node.out[0], node.in[0], ConvDirection::data)) return;
      node.in[0] = plain(node, 0);
      store_plain(node.out[0]);
      if (use_weights(node, conv, node.out[0], node.in[0], ConvDirection::data)) return;
    }
    node.in[1] = plain(node, 1);
  }

  // The weight's layout is fixed. d_z gets the layout of x if there is a kernel for that; else both
  // get the first combination that has one.
  void place_weight_grad(Node& node, const Conv& conv) {
    if (blocked(node.in[1]) && use_planes(node)) return;
    const bool as_x = blocked(node.in[0]);
    using Blocks = std::array<bool, 2>;
    for (const Blocks& blocks : {Blocks{as_x, as_x}, Blocks{as_x, !as_x}, Blocks{!as_x, as_x},
                                 Blocks{!as_x, !as_x}, Blocks{false, false}}) {
      if (!computes_weight_grad(node, conv, blocks) && blocks != Blocks{false, false}) continue;
      for (const int i : {0, 1}) {
        const Value& value = graph_.value(node.in[idx(i)]);
        node.in[idx(i)] =
            reorder(node.in[idx(i)], layout(value, target(node.in[idx(i)], blocks[idx(i)])), node);
      }
      return;
    }
  }

  // Whether there is a fast kernel for x and d_z in these layouts: blocks or plain rows.
  bool computes_weight_grad(const Node& node, const Conv& conv, std::array<bool, 2> blocks) const {
    std::array<Value, 2> images{graph_.value(node.in[0]), graph_.value(node.in[1])};
    for (const std::size_t i : {0U, 1U}) {
      if (blocks[i] && !fills_blocks(context_, images[i].type.shape[3])) return false;
      images[i].layout = layout(images[i], target(node.in[i], blocks[i]));
    }
    const Value& weight = graph_.value(node.out[0]);
    if (weight.layout.tag.empty() && takes_eight_channels(conv, images[0], images[1])) return true;
    ConvShapes s = shapes(conv, images[0], weight, images[1]);
    s.weight_md = descriptor(weight);
    return plan_conv(context_.engine, s, ConvDirection::weights, context_.exact_math).has_value();
  }

  // Reorders input 0 to planes if it begins blocks.
  bool use_planes(Node& node) {
    const auto found = plan_.beginning.find(node.in[0]);
    if (found == plan_.beginning.end()) return false;
    node.in[0] = reorder(node.in[0], found->second, node);
    return true;
  }

  // Reorders input 1, the weight, to the layout that oneDNN's kernel for these images needs; false
  // if there is no kernel.
  bool use_weights(Node& node, const Conv& conv, int x, int z, ConvDirection direction) {
    const Value& weight = graph_.value(node.in[1]);
    const auto plan =
        plan_conv(context_.engine, shapes(conv, graph_.value(x), weight, graph_.value(z)),
                  direction, context_.exact_math);
    if (plan) node.in[1] = reorder(node.in[1], layout(weight, plan->weights), node);
    return plan.has_value();
  }

  void fix_weights(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      const auto* conv = std::get_if<Conv>(&node.op);
      const int p = conv ? graph_.value(node.in[1]).parameter : -1;
      if (p < 0 || graph_.parameters[idx(p)].gradient < 0 || given_[idx(node.in[1])]) continue;
      const bool b = plan_.blocks[idx(node.out[0])];
      Value x = graph_.value(node.in[0]), z = graph_.value(node.out[0]);
      x.layout = b && plan_.beginning.contains(node.in[0])
                     ? plan_.beginning.at(node.in[0])
                     : layout(x, target(node.in[0], b && plan_.blocks[idx(node.in[0])]));
      z.layout = layout(z, target(node.out[0], b));
      if (takes_eight_channels(*conv, x, z) || takes_small_maps(*conv, x, z)) continue;  // plain
      Conv plain = *conv;
      plain.relu = false;
      const auto plan = plan_conv(context_.engine, shapes(plain, x, graph_.value(node.in[1]), z),
                                  ConvDirection::weights, context_.exact_math);
      if (plan) store_parameter(graph_.parameters[idx(p)], plan->weights);
    }
  }

  void store_parameter(const Parameter& parameter, const dnnl::memory::desc& md) {
    const Layout chosen = layout(graph_.value(parameter.value), md);
    graph_.value(parameter.value).layout = chosen;
    graph_.value(parameter.gradient).layout = chosen;
    for (const int moment : parameter.moments) graph_.value(moment).layout = chosen;
    for (const int kept : {parameter.accumulator, parameter.average})
      if (kept >= 0) graph_.value(kept).layout = chosen;
    for (Value& value : graph_.values)  // parts of the gradient
      if (value.role == Role::activation &&
          value.parameter == graph_.value(parameter.value).parameter)
        value.layout = chosen;
  }

  Graph& graph_;
  const Context& context_;
  Users users_;
  BlockPlan plan_;
  std::vector<bool> given_;                  // values whose layout was chosen before
  std::vector<std::pair<int, int>> pooled_;  // a pool's index and its x
  std::map<std::pair<int, std::string>, int> reordered_;
};

}  // namespace

void choose_layouts(Graph& graph, const Context& context) {
  LayoutPass(graph, context).run();
}

}  // namespace warpstep::cpu
