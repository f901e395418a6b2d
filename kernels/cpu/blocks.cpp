#include "kernels/cpu/blocks.h"

#include <algorithm>
#include <optional>

#include "kernels/conv/small_maps.h"

namespace warpstep::cpu {
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
        blocks[idx(node.out[0])] = blocks[idx(node.in[idx(leader(node))])];
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

  // Some users are convolutions that gain from blocks of channels, maybe behind others that keep or
  // change the layout as they go, and no user has no use for blocks.
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

  // Blocks fit both images of a convolution, and oneDNN has kernels for them in all directions of
  // the step.
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

  // A network's first convolution, of images with a few channels, in front of a batch norm: oneDNN
  // makes blocks of planes of channels (nchw), not of rows.
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
  std::vector<std::optional<bool>> wants_;  // what wants() found
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
  return std::holds_alternative<Relu>(op) || std::holds_alternative<ReluGrad>(op) ||
         std::holds_alternative<Add>(op) || std::holds_alternative<Dropout>(op) ||
         std::holds_alternative<BatchNorm>(op) || std::holds_alternative<BatchNormGrad>(op);
}

int leader(const Node& node) {
  if (std::holds_alternative<BatchNormGrad>(node.op)) return 1;
  if (std::holds_alternative<BatchNorm>(node.op) || std::holds_alternative<Dropout>(node.op))
    return 0;
  return static_cast<int>(node.in.size()) - 1;
}

bool fills_blocks(const Context& context, std::int64_t channels) {
  return context.block > 0 && channels % context.block == 0;
}

BlockPlan plan_blocks(const Graph& graph, const std::vector<Node>& nodes, const Users& users,
                      const Context& context) {
  return Planner(graph, users, context).plan(nodes);
}

}  // namespace warpstep::cpu
