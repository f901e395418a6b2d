#include "engine/passes/fuse_norm_conv.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/passes/rewriter.h"

namespace warpstep {
namespace {

bool is_plain(const Conv& conv) {
  return !conv.bias && !conv.relu && !conv.pool;
}

// The numbers that a norm's statistics end in.
struct Channels {
  int scale, bias;
};

class Fusing {
 public:
  Fusing(Graph& graph, const Computes& computes) : graph_(graph), computes_(computes) {}

  void statistics();
  void norm_gradients();
  void shortcut_norm_gradients();
  void prologues();
  void joins();

 private:
  bool computes(const AnyOp& op, const std::vector<int>& in) const {
    return computes_(op, graph_.types(in));
  }
  // Values for the outputs that `node` has by its op and not yet by its list.
  void add_outputs(Node& node, const std::vector<const char*>& names);
  std::vector<Node*> users(int value);
  // Of the norm that a NormApply is the second half of.
  Channels channels_of(Rewriter& rewriter, const Node& apply) const;
  std::optional<Node> joined(Rewriter& rewriter, const Node& apply, const Node& conv) const;

  Graph& graph_;
  const Computes& computes_;
};

void Fusing::add_outputs(Node& node, const std::vector<const char*>& names) {
  const Types types = infer(node.op, graph_.types(node.in));
  for (const char* name : names) {
    const Type& type = types[node.out.size()];
    const Role role = type.dtype == DType::f32 ? Role::statistic : Role::activation;
    node.out.push_back(graph_.add_value(type, role, fmt::format("{} {}", node.scope, name)));
  }
}

std::vector<Node*> Fusing::users(int value) {
  std::vector<Node*> found;
  for (Node& node : graph_.nodes)
    found.insert(found.end(), std::count(node.in.begin(), node.in.end(), value), &node);
  return found;
}

// conv, batch_norm -> norm_conv with its sums, norm_finalize, norm_apply.
void Fusing::statistics() {
  std::vector<Node> nodes;
  std::map<int, std::size_t> convs;  // by what they write: place in `nodes`
  for (Node& node : graph_.nodes) {
    if (std::holds_alternative<Conv>(node.op)) convs[node.out[0]] = nodes.size();
    const auto* norm = std::get_if<BatchNorm>(&node.op);
    const auto found =
        norm && norm->training && norm->ranks == 1 ? convs.find(node.in[0]) : convs.end();
    if (found == convs.end()) {
      nodes.push_back(std::move(node));
      continue;
    }
    Node& conv = nodes[found->second];
    const NormConv fused{.conv = std::get<Conv>(conv.op)};
    if (!is_plain(fused.conv) || !computes(fused, conv.in)) {
      nodes.push_back(std::move(node));
      continue;
    }
    conv.op = fused;
    add_outputs(conv, {"sums", "squares"});
    const Type x = graph_.value(node.in[0]).type;
    Node finalize = node, apply = node;
    BatchNorm alone = *norm;
    alone.add = alone.relu = false;
    finalize.op = NormFinalize{alone, x.shape.count() / x.shape.back(), x.dtype};
    finalize.in = {conv.out[1], conv.out[2]};
    finalize.in.insert(finalize.in.end(), node.in.begin() + 1, node.in.begin() + 5);
    finalize.out = {node.out[1], node.out[2]};
    add_outputs(finalize, {"scale", "bias"});
    apply.op = NormApply{*norm};
    apply.in = {node.in[0], node.in[1], node.in[2], node.out[1], node.out[2]};
    apply.in.insert(apply.in.end(), node.in.begin() + 5, node.in.end());
    apply.out.resize(1);
    convs.erase(found);  // a second norm of it sums for itself
    nodes.push_back(std::move(finalize));
    nodes.push_back(std::move(apply));
  }
  graph_.nodes = std::move(nodes);
}

// conv.dgrad, batch_norm.dgrad of a norm with a relu -> norm_conv.dgrad, norm_apply.dgrad. Not of a
// norm over several ranks: its sums are exchanged before they are applied.
void Fusing::norm_gradients() {
  Rewriter rewriter(graph_);
  for (Node& node : graph_.nodes) {
    const auto* grad = std::get_if<BatchNormGrad>(&node.op);
    if (!grad || !grad->norm.relu || grad->norm.add || grad->sum || grad->norm.ranks > 1) continue;
    Node* dgrad = rewriter.sole_producer<ConvDataGrad>(node.in[0]);
    if (!dgrad) continue;
    const NormConvDataGrad fused{std::get<ConvDataGrad>(dgrad->op).conv};
    const int mean = node.in[3];
    const Node* finalize = rewriter.producer<NormFinalize>(mean);
    const Node* norm = rewriter.producer<BatchNorm>(mean);
    if (!is_plain(fused.conv) || (!finalize && !norm)) continue;
    const int beta = finalize ? finalize->in[3] : norm->in[2];
    const std::vector<int> in{dgrad->in[0], dgrad->in[1], node.in[1], node.in[2],
                              beta,         mean,         node.in[4]};
    // The end of a recomputed scope is computed again for the norm's gradient, after the dgrad.
    const bool ready =
        std::ranges::all_of(in, [&](int value) { return rewriter.is_made_before(value, *dgrad); });
    if (!ready || !computes(fused, in)) continue;
    dgrad->op = fused;
    dgrad->in = in;
    add_outputs(*dgrad, {"d_gamma", "d_beta", "by_g", "by_x", "constant"});
    node.op = NormGradApply{};
    node.in = {dgrad->out[0], in[2]};
    node.in.insert(node.in.end(), dgrad->out.begin() + 1, dgrad->out.end());
  }
}

// batch_norm.dgrad that gives a shortcut's gradient, batch_norm.dgrad of the norm that made the
// shortcut -> batch_norm.dgrad of both.
void Fusing::shortcut_norm_gradients() {
  Rewriter rewriter(graph_);
  for (Node& node : graph_.nodes) {
    const auto* grad = std::get_if<BatchNormGrad>(&node.op);
    if (!grad || grad->norm.relu || grad->norm.add || grad->sum || grad->norm.ranks > 1) continue;
    Node* end = rewriter.sole_producer<BatchNormGrad>(node.in[0]);
    if (!end || end->out.size() != 4 || end->out[3] != node.in[0]) continue;
    BatchNormGrad both = std::get<BatchNormGrad>(end->op);
    both.shortcut_norm = true;
    std::vector<int> in = end->in;
    in.insert(in.end(), node.in.begin() + 1, node.in.end());
    // What a recomputed scope makes again may come too late.
    const bool ready = std::all_of(node.in.begin() + 1, node.in.end(),
                                   [&](int value) { return rewriter.is_made_before(value, *end); });
    if (!ready || !computes(both, in)) continue;
    end->op = both;
    end->in = in;
    end->out[3] = node.out[0];
    end->out.insert(end->out.end(), node.out.begin() + 1, node.out.end());
    rewriter.drop(node);
  }
}

Channels Fusing::channels_of(Rewriter& rewriter, const Node& apply) const {
  const Node* finalize = rewriter.producer<NormFinalize>(apply.in[3]);
  return {finalize->out[2], finalize->out[3]};
}

// norm_apply with a relu, norm_conv -> norm_conv with a prologue, and the same for its weight
// gradient (which reads another copy where a scope is recomputed), if nothing else reads what the
// norm gives.
void Fusing::prologues() {
  Rewriter rewriter(graph_);
  for (Node& apply : graph_.nodes) {
    const auto* norm = std::get_if<NormApply>(&apply.op);
    if (!norm || !norm->norm.relu || norm->norm.add) continue;
    Node *conv = nullptr, *wgrad = nullptr;
    const std::vector<Node*> readers = users(apply.out[0]);
    for (Node* reader : readers) {
      if (std::holds_alternative<NormConv>(reader->op)) conv = reader;
      if (std::holds_alternative<ConvWeightGrad>(reader->op)) wgrad = reader;
    }
    const std::size_t known = wgrad ? 2 : 1;
    if (!conv || readers.size() != known || graph_.logits == apply.out[0]) continue;
    const auto [scale, bias] = channels_of(rewriter, apply);
    NormConv forward = std::get<NormConv>(conv->op);
    forward.prologue = Prologue::norm;
    const std::vector<int> forward_in{apply.in[0], conv->in[1], scale, bias};
    if (!computes(forward, forward_in)) continue;
    if (wgrad) {
      const NormConvWeightGrad backward{forward.conv};
      const std::vector<int> backward_in{apply.in[0], scale, bias, wgrad->in[1]};
      if (!computes(backward, backward_in)) continue;
      wgrad->op = backward;
      wgrad->in = backward_in;
    }
    conv->op = forward;
    conv->in = forward_in;
    rewriter.drop(apply);
  }
}

// `conv` as it reads what `apply` is made of; of two norms where the shortcut's is applied for
// nothing else.
std::optional<Node> Fusing::joined(Rewriter& rewriter, const Node& apply, const Node& conv) const {
  const auto [scale, bias] = channels_of(rewriter, apply);
  const auto fused = [&](Prologue prologue, const std::vector<int>& shortcut) {
    Node node = conv;
    NormConv op = std::get<NormConv>(conv.op);
    op.prologue = prologue;
    node.op = op;
    node.in = {apply.in[0], conv.in[1], scale, bias};
    node.in.insert(node.in.end(), shortcut.begin(), shortcut.end());
    node.out.push_back(apply.out[0]);
    return computes(op, node.in) ? std::optional(node) : std::nullopt;
  };
  if (const Node* other = rewriter.sole_producer<NormApply>(apply.in[5])) {
    const BatchNorm& norm = std::get<NormApply>(other->op).norm;
    if (!norm.relu && !norm.add) {
      const Channels of_shortcut = channels_of(rewriter, *other);
      auto node = fused(Prologue::join_norms, {other->in[0], of_shortcut.scale, of_shortcut.bias});
      if (node) {
        rewriter.drop(*other);
        return node;
      }
    }
  }
  return fused(Prologue::join, {apply.in[5]});
}

// norm_apply with a shortcut, norm_conv -> norm_conv that writes the sum, too: it comes before all
// others that read it.
void Fusing::joins() {
  Rewriter rewriter(graph_);
  for (Node& apply : graph_.nodes) {
    const auto* norm = std::get_if<NormApply>(&apply.op);
    if (!norm || !norm->norm.relu || !norm->norm.add) continue;
    for (Node* reader : users(apply.out[0])) {
      const auto* conv = std::get_if<NormConv>(&reader->op);
      if (!conv || conv->prologue != Prologue::none) continue;
      std::optional<Node> fused = joined(rewriter, apply, *reader);
      if (!fused) continue;
      rewriter.drop(*reader);
      apply = std::move(*fused);
      break;
    }
  }
}

}  // namespace

void fuse_conv_statistics(Graph& graph, const FuseOptions& options) {
  if (options.computes) Fusing(graph, options.computes).statistics();
}

void fuse_norm_gradients(Graph& graph, const FuseOptions& options) {
  if (options.computes) Fusing(graph, options.computes).norm_gradients();
}

void fuse_shortcut_norm_gradients(Graph& graph, const FuseOptions& options) {
  if (options.computes) Fusing(graph, options.computes).shortcut_norm_gradients();
}

void fuse_norm_prologues(Graph& graph, const FuseOptions& options) {
  if (options.computes) Fusing(graph, options.computes).prologues();
}

void fuse_joins(Graph& graph, const FuseOptions& options) {
  if (options.computes) Fusing(graph, options.computes).joins();
}

}  // namespace warpstep
