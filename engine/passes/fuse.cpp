#include "engine/passes/fuse.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/core/error.h"
#include "engine/passes/fuse_norm_conv.h"
#include "engine/passes/rewriter.h"
#include "engine/passes/update.h"

namespace warpstep {
namespace {

// The norm replaces the relu: there, all that it then reads has been made.
void move_norm(Rewriter& rewriter, Node& norm, Node& relu) {
  norm.out[0] = relu.out[0];
  rewriter.drop(norm);
  relu = norm;
}

void fuse_norm_relu(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    if (!std::holds_alternative<Relu>(relu.op)) continue;
    Node* norm = rewriter.sole_producer<BatchNorm>(relu.in[0]);
    if (!norm) continue;
    std::get<BatchNorm>(norm->op).relu = true;
    move_norm(rewriter, *norm, relu);
  }
}

void fuse_norm_add_relu(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    if (!std::holds_alternative<Relu>(relu.op)) continue;
    Node* add = rewriter.sole_producer<Add>(relu.in[0]);
    if (!add) continue;
    for (const int branch : {0, 1}) {
      Node* norm = rewriter.sole_producer<BatchNorm>(add->in[idx(branch)]);
      if (!norm || std::get<BatchNorm>(norm->op).relu || std::get<BatchNorm>(norm->op).add)
        continue;
      std::get<BatchNorm>(norm->op).add = std::get<BatchNorm>(norm->op).relu = true;
      norm->in.push_back(add->in[idx(1 - branch)]);
      rewriter.drop(*add);
      move_norm(rewriter, *norm, relu);
      break;
    }
  }
}

void fuse_add_norm_grad(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : graph.nodes) {
    auto* grad = std::get_if<BatchNormGrad>(&node.op);
    Node* add = grad ? rewriter.sole_producer<Add>(node.in[0]) : nullptr;
    if (!add || grad->sum || (grad->norm.add && !grad->norm.relu)) continue;
    grad->sum = true;
    node.in[0] = add->in[0];
    node.in.push_back(add->in[1]);
    rewriter.drop(*add);
  }
}

// The norm computes the sum where the norm stands, so whatever else reads the sum must come later.
void fuse_add_layer_norm(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : graph.nodes) {
    auto* norm = std::get_if<LayerNorm>(&node.op);
    Node* add = norm && !norm->add ? rewriter.producer<Add>(node.in[0]) : nullptr;
    if (!add || rewriter.is_read_between(add->out[0], *add, node)) continue;
    norm->add = true;
    node.in[0] = add->in[0];
    node.in.push_back(add->in[1]);
    node.out.push_back(add->out[0]);
    rewriter.drop(*add);
  }
}

void fuse_relu_pool(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : graph.nodes)
    if (auto* pool = std::get_if<MaxPool>(&node.op))
      if (Node* relu = rewriter.sole_producer<Relu>(node.in[0])) {
        pool->relu = true;
        node.in[0] = relu->in[0];
        rewriter.drop(*relu);
      }
}

// relu(layer(x)) -> layer with its relu flag set.
template <class Layer>
void fuse_layer_relu(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : graph.nodes)
    if (std::holds_alternative<Relu>(node.op))
      if (Node* layer = rewriter.sole_producer<Layer>(node.in[0])) {
        std::get<Layer>(layer->op).relu = true;
        layer->out[0] = node.out[0];
        rewriter.drop(node);
      }
}

// Only the form with tanh, the one that cublasLt has; training keeps what the unit reads.
void fuse_linear_gelu(Graph& graph, const FuseOptions& options) {
  Rewriter rewriter(graph);
  for (Node& gelu : graph.nodes) {
    const auto* op = std::get_if<Gelu>(&gelu.op);
    Node* layer = op && op->tanh ? rewriter.sole_producer<Linear>(gelu.in[0]) : nullptr;
    if (!layer) continue;
    auto& linear = std::get<Linear>(layer->op);
    if (!linear.bias || linear.relu) continue;
    linear.gelu = true;
    linear.keep = options.training;
    layer->out = {gelu.out[0]};
    if (linear.keep) layer->out.push_back(gelu.in[0]);
    rewriter.drop(gelu);
  }
}

void fuse_softmax_xent(Graph& graph, const FuseOptions& options) {
  Rewriter rewriter(graph);
  for (Node& nll : graph.nodes) {
    if (!std::holds_alternative<Nll>(nll.op)) continue;
    Node* softmax = rewriter.sole_producer<LogSoftmax>(nll.in[0]);
    const auto top1 = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
      return std::holds_alternative<Top1>(n.op) && softmax && n.in[0] == softmax->in[0] &&
             n.in[1] == nll.in[1];
    });
    if (!softmax || top1 == graph.nodes.end()) continue;
    const Nll loss = std::get<Nll>(nll.op);
    nll.op = SoftmaxXent{.gradient = options.training,
                         .mixed = loss.mixed,
                         .smoothing = loss.smoothing,
                         .weighted = loss.weighted};
    nll.in[0] = softmax->in[0];
    nll.out.push_back(top1->out[0]);
    if (options.training)
      nll.out.push_back(graph.add_value(graph.value(nll.in[0]).type, Role::activation, "d_logits"));
    rewriter.drop(*softmax);
    rewriter.drop(*top1);
  }
}

// The weight gradient of the layer whose d_z is `value`, if it gives the bias's.
Node* bias_gradient_by(Graph& graph, int value) {
  for (Node& node : graph.nodes)
    if (const auto* wgrad = std::get_if<LinearWeightGrad>(&node.op);
        wgrad && wgrad->bias && node.in[1] == value)
      return &node;
  return nullptr;
}

void fuse_linear_dgrad_relu(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    if (!std::holds_alternative<ReluGrad>(relu.op)) continue;
    Node* dgrad = rewriter.sole_producer<LinearDataGrad>(relu.in[0]);
    Node* layer = rewriter.producer<Linear>(relu.in[1]);
    Node* wgrad = bias_gradient_by(graph, relu.out[0]);
    if (!dgrad || !layer || !wgrad) continue;
    std::get<Linear>(layer->op).mask = true;
    const Type mask = infer(layer->op, graph.types(layer->in))[1];
    layer->out.push_back(graph.add_value(mask, Role::mask, layer->title() + " mask"));
    std::get<LinearDataGrad>(dgrad->op).relu = true;
    dgrad->in.insert(dgrad->in.end(), {layer->out[1], relu.in[1]});
    dgrad->out = {relu.out[0], wgrad->out[1]};
    std::get<LinearWeightGrad>(wgrad->op).bias = false;
    wgrad->out.pop_back();
    rewriter.drop(relu);
  }
}

// z may be any value: the unit's slope depends on nothing else.
void fuse_linear_dgrad_gelu(Graph& graph, const FuseOptions&) {
  Rewriter rewriter(graph);
  for (Node& gelu : graph.nodes) {
    const auto* op = std::get_if<GeluGrad>(&gelu.op);
    Node* dgrad = op && op->tanh ? rewriter.sole_producer<LinearDataGrad>(gelu.in[0]) : nullptr;
    Node* wgrad = dgrad ? bias_gradient_by(graph, gelu.out[0]) : nullptr;
    if (!wgrad || !rewriter.is_made_before(gelu.in[1], *dgrad)) continue;
    std::get<LinearDataGrad>(dgrad->op).gelu = true;
    dgrad->in.push_back(gelu.in[1]);
    dgrad->out = {gelu.out[0], wgrad->out[1]};
    std::get<LinearWeightGrad>(wgrad->op).bias = false;
    wgrad->out.pop_back();
    rewriter.drop(gelu);
  }
}

// The field by which an op also computes the column sums of what it writes.
bool* bias_gradient_of(AnyOp& op) {
  if (auto* relu = std::get_if<ReluGrad>(&op)) return &relu->bias_gradient;
  if (auto* gelu = std::get_if<GeluGrad>(&op)) return &gelu->bias_gradient;
  if (auto* norm = std::get_if<LayerNormGrad>(&op)) return &norm->bias_gradient;
  if (auto* pool = std::get_if<MaxPoolGrad>(&op)) return &pool->bias_gradient;
  return nullptr;
}

// Likewise a weight gradient: whether it gives its layer's bias gradient.
bool* gives_bias_gradient(AnyOp& op) {
  if (auto* conv = std::get_if<ConvWeightGrad>(&op)) return &conv->conv.bias;
  if (auto* linear = std::get_if<LinearWeightGrad>(&op)) return &linear->bias;
  return nullptr;
}

void fuse_dgrad_bias(Graph& graph, const FuseOptions&) {
  const std::vector<int> producers = graph.producers();
  for (Node& node : graph.nodes) {
    bool* bias = gives_bias_gradient(node.op);
    const int writer = bias && *bias ? producers[idx(node.in[1])] : -1;
    if (writer < 0) continue;
    Node& dgrad = graph.nodes[idx(writer)];
    bool* bias_gradient = bias_gradient_of(dgrad.op);
    if (!bias_gradient || dgrad.out[0] != node.in[1]) continue;
    if (*bias_gradient) continue;  // two layers may share a d_z
    *bias_gradient = true;
    *bias = false;
    dgrad.out.push_back(node.out.back());
    node.out.pop_back();
  }
}

// One for each run of parameters with the same rule.
void fuse_updates(Graph& graph, const FuseOptions&) {
  std::vector<Node> all;
  for (const Node& node : graph.nodes)
    if (const auto* update = std::get_if<Update>(&node.op)) {
      const UpdateAll op{update->optimizer};
      if (all.empty() || std::get<UpdateAll>(all.back().op) != op) all.push_back(pass_node(op, {}));
      all.back().in.insert(all.back().in.end(), node.in.begin(), node.in.end());
    }
  std::erase_if(graph.nodes,
                [](const Node& node) { return std::holds_alternative<Update>(node.op); });
  graph.nodes.insert(graph.nodes.end(), all.begin(), all.end());
}

// The gradients of a pooled convolution, as far as the step has them.
struct PooledGradients {
  Node* pool = nullptr;
  std::vector<Node*> data, weight;
};

// The gradients to rewrite where `conv` takes over `pool`: none in a step without gradients.
// Nothing if something else reads the pool's index or what the pool's gradient writes.
std::optional<PooledGradients> pooled_gradients(Graph& graph, const Node& conv, const Node& pool) {
  PooledGradients found;
  for (Node& node : graph.nodes)
    if (std::ranges::find(node.in, pool.out[1]) != node.in.end()) {
      if (!std::holds_alternative<MaxPoolGrad>(node.op) || found.pool) return std::nullopt;
      found.pool = &node;
    }
  if (!found.pool) return found;
  const int d_z = found.pool->out[0];
  int uses = 0;
  for (Node& node : graph.nodes) {
    const auto reads = std::ranges::count(node.in, d_z);
    if (reads == 0) continue;
    uses += static_cast<int>(reads);
    if (std::holds_alternative<ConvDataGrad>(node.op) && node.in[0] == d_z &&
        node.in[1] == conv.in[1])
      found.data.push_back(&node);
    else if (std::holds_alternative<ConvWeightGrad>(node.op) && node.in[1] == d_z &&
             node.in[0] == conv.in[0])
      found.weight.push_back(&node);
  }
  const bool all = uses == static_cast<int>(found.data.size() + found.weight.size());
  const bool sums = found.pool->out.size() > 1;  // the convolution's bias gradient
  if (!all || (sums && found.weight.size() != 1)) return std::nullopt;
  return found;
}

void fuse_conv_pool(Graph& graph, const FuseOptions& options) {
  if (!options.computes) return;
  Rewriter rewriter(graph);
  for (Node& pool : graph.nodes) {
    if (!std::holds_alternative<MaxPool>(pool.op)) continue;
    Node* conv = rewriter.sole_producer<Conv>(pool.in[0]);
    if (!conv || std::get<Conv>(conv->op).relu) continue;
    Conv fused = std::get<Conv>(conv->op);
    fused.pool = std::get<MaxPool>(pool.op);
    const auto gradients = pooled_gradients(graph, *conv, pool);
    if (!gradients || !options.computes(fused, graph.types(conv->in))) continue;
    conv->op = fused;
    conv->out = pool.out;
    rewriter.drop(pool);
    if (!gradients->pool) continue;
    const Node& of_pool = *gradients->pool;
    for (Node* node : gradients->data) {
      std::get<ConvDataGrad>(node->op).conv.pool = fused.pool;
      node->in = {of_pool.in[0], node->in[1], of_pool.in[1]};
    }
    for (Node* node : gradients->weight) {
      Conv& op = std::get<ConvWeightGrad>(node->op).conv;
      op.pool = fused.pool;
      node->in = {node->in[0], of_pool.in[0], of_pool.in[1]};
      if (of_pool.out.size() > 1) {
        op.bias = true;
        node->out.push_back(of_pool.out[1]);
      }
    }
    rewriter.drop(of_pool);
  }
}

// The nodes that read `value`; one that reads it twice is there twice.
std::vector<Node*> readers(Graph& graph, int value) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes)
    found.insert(found.end(), static_cast<std::size_t>(std::ranges::count(node.in, value)), &node);
  return found;
}

// batch_norm, max_pool, max_pool.dgrad, batch_norm.dgrad -> norm_pool, norm_pool.dgrad. Only of a
// step that has all four.
void fuse_norm_pool(Graph& graph, const FuseOptions& options) {
  if (!options.computes) return;
  Rewriter rewriter(graph);
  for (Node& pool : graph.nodes) {
    const auto* op = std::get_if<MaxPool>(&pool.op);
    Node* norm = op ? rewriter.sole_producer<BatchNorm>(pool.in[0]) : nullptr;
    if (!norm || graph.logits == pool.in[0]) continue;
    const NormPool fused{std::get<BatchNorm>(norm->op), *op};
    if (fused.norm.relu || fused.norm.add || !fused.norm.training || fused.norm.ranks > 1) continue;
    // Of the pool, then of the norm.
    const std::vector<Node*> of_pool = readers(graph, pool.out[1]);
    if (of_pool.size() != 1 || !std::holds_alternative<MaxPoolGrad>(of_pool[0]->op) ||
        of_pool[0]->out.size() != 1)
      continue;
    const std::vector<Node*> of_norm = readers(graph, of_pool[0]->out[0]);
    const auto* grad = of_norm.size() == 1 ? std::get_if<BatchNormGrad>(&of_norm[0]->op) : nullptr;
    if (!grad || grad->sum || grad->shortcut_norm || of_norm[0]->in[3] != norm->out[1]) continue;
    Node &unpool = *of_pool[0], &dgrad = *of_norm[0];
    const NormPoolGrad fused_grad{*op};
    const std::vector<int> in{unpool.in[0], unpool.in[1], dgrad.in[1],
                              dgrad.in[2],  dgrad.in[3],  dgrad.in[4]};
    if (!options.computes(fused, graph.types(norm->in)) ||
        !options.computes(fused_grad, graph.types(in)))
      continue;
    norm->op = fused;
    norm->out = {pool.out[0], pool.out[1], norm->out[1], norm->out[2]};
    rewriter.drop(pool);
    dgrad.op = fused_grad;
    dgrad.in = in;
    rewriter.drop(unpool);
  }
}

// The weight gradient whose layer's output has the gradient `d_z`, if nothing else is one.
Node* sole_weight_gradient(Graph& graph, int d_z) {
  Node* found = nullptr;
  for (Node& node : graph.nodes) {
    const bool is_one = (std::holds_alternative<ConvWeightGrad>(node.op) ||
                         std::holds_alternative<LinearWeightGrad>(node.op)) &&
                        node.in[1] == d_z;
    if (is_one && found) return nullptr;
    if (is_one) found = &node;
  }
  return found;
}

// The weight gradient of the layer before the relu takes its bias gradient back.
void fuse_conv_dgrad_relu(Graph& graph, const FuseOptions& options) {
  if (!options.computes) return;
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    const auto* op = std::get_if<ReluGrad>(&relu.op);
    Node* dgrad = op ? rewriter.sole_producer<ConvDataGrad>(relu.in[0]) : nullptr;
    if (!dgrad || !rewriter.is_made_before(relu.in[1], *dgrad)) continue;
    ConvDataGrad fused = std::get<ConvDataGrad>(dgrad->op);
    std::vector<int> in = dgrad->in;
    fused.relu = true;
    in.push_back(relu.in[1]);
    Node* wgrad = op->bias_gradient ? sole_weight_gradient(graph, relu.out[0]) : nullptr;
    bool* bias = wgrad ? gives_bias_gradient(wgrad->op) : nullptr;
    if (op->bias_gradient && (!bias || *bias)) continue;
    if (!options.computes(fused, graph.types(in))) continue;
    if (bias) {
      *bias = true;
      wgrad->out.push_back(relu.out[1]);
    }
    dgrad->op = fused;
    dgrad->in = std::move(in);
    dgrad->out = {relu.out[0]};
    rewriter.drop(relu);
  }
}

// In the order in which they are applied.
constexpr std::array table{
    FusionRow{fusion::relu_pool,
              "max pooling clamps its maximum: the relu's output is never written nor read",
              FuseStage::forward, fuse_relu_pool},
    FusionRow{fusion::conv_relu,
              "the convolution clamps what it writes; its adjoint reads the mask from its output",
              FuseStage::forward, fuse_layer_relu<Conv>},
    FusionRow{fusion::linear_relu, "the same for the fully connected layer", FuseStage::forward,
              fuse_layer_relu<Linear>},
    FusionRow{fusion::linear_gelu,
              "the fully connected layer applies GELU to what it writes, and training keeps what "
              "the unit reads",
              FuseStage::forward, fuse_linear_gelu},
    FusionRow{fusion::norm_relu,
              "the batch norm clamps what it writes; its adjoint reads the mask from its output",
              FuseStage::forward, fuse_norm_relu},
    FusionRow{fusion::norm_add_relu,
              "a residual block's end in one pass: the norm adds the shortcut and clamps; its "
              "adjoint gives the shortcut's gradient, too",
              FuseStage::forward, fuse_norm_add_relu},
    FusionRow{fusion::add_layer_norm,
              "the layer norm adds the residual's two parts while it reads them; its adjoint adds "
              "the gradients of the sum's two users",
              FuseStage::forward, fuse_add_layer_norm},
    FusionRow{fusion::softmax_xent, "loss, top-1 count and d_logits in one pass over the logits",
              FuseStage::forward, fuse_softmax_xent},
    FusionRow{fusion::add_norm_dgrad,
              "the norm's adjoint adds the gradients of its output's two users while it reads them",
              FuseStage::backward, fuse_add_norm_grad},
    FusionRow{fusion::linear_dgrad_relu,
              "the layer keeps its relu's signs as bits, by which the next layer's data gradient "
              "masks what it writes; it sums the bias gradient, too",
              FuseStage::backward, fuse_linear_dgrad_relu},
    FusionRow{fusion::linear_dgrad_gelu,
              "the layer's data gradient applies the adjoint of the GELU before it to what it "
              "writes; it sums the bias gradient, too",
              FuseStage::backward, fuse_linear_dgrad_gelu},
    FusionRow{fusion::dgrad_bias,
              "the adjoint of a relu, a GELU, a layer norm or a pool sums what it writes: the bias "
              "gradient of the layer before it, without a separate pass",
              FuseStage::backward, fuse_dgrad_bias},
    FusionRow{fusion::updates, "every parameter's update in one call over one arena",
              FuseStage::updates, fuse_updates},
    FusionRow{fusion::conv_pool,
              "the convolution pools what it computes and its gradients read through the pool: "
              "its output and that gradient are never written",
              FuseStage::lowered, fuse_conv_pool},
    FusionRow{fusion::conv_dgrad_relu,
              "the convolution's data gradient masks what it writes for the relu before it",
              FuseStage::lowered, fuse_conv_dgrad_relu},
    FusionRow{fusion::conv_statistics,
              "the convolution sums what it writes for the batch norm after it, which then does "
              "not read it for its statistics",
              FuseStage::lowered, fuse_conv_statistics},
    FusionRow{fusion::dgrad_norm_dgrad,
              "the convolution's data gradient is masked and summed for the norm before it as "
              "it is written",
              FuseStage::lowered, fuse_norm_gradients},
    FusionRow{fusion::norm_dgrad_norm_dgrad,
              "the gradients of the two norms that a residual block's end adds, in the two passes "
              "of one: what they share is read once",
              FuseStage::lowered, fuse_shortcut_norm_gradients},
    FusionRow{fusion::norm_pool,
              "the norm is applied as its result is pooled, and its gradient reads through the "
              "pool: neither is written",
              FuseStage::lowered, fuse_norm_pool},
    FusionRow{fusion::norm_conv,
              "the convolution normalises and clamps what it reads, and so does its weight "
              "gradient: what the norm gives is never written",
              FuseStage::lowered, fuse_norm_prologues},
    FusionRow{fusion::join_conv,
              "the same with a residual block's shortcut; the sum is written on the way, for its "
              "other readers",
              FuseStage::lowered, fuse_joins},
};

void require_known(const std::set<std::string, std::less<>>& names) {
  for (const std::string& name : names) {
    if (std::ranges::find(table, name, &FusionRow::name) != table.end()) continue;
    std::string known;
    for (const FusionRow& row : table)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
    fail<UsageError>("no fusion is called '{}'; there are {}", name, known);
  }
}

}  // namespace

std::span<const FusionRow> fusion_table() {
  return table;
}

Graph fuse(Graph graph, FuseStage stage, const FuseOptions& options) {
  require_known(options.disabled);
  for (const FusionRow& row : table)
    if (row.stage == stage && !options.disabled.contains(row.name)) row.apply(graph, options);
  return graph;
}

}  // namespace warpstep
