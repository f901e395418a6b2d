// Ops of rows, tokens, pixels and parameters that nobody designed, as cases: see random_cases.cpp.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/passes/fuse.h"
#include "engine/passes/update.h"
#include "kernels/cases.h"
#include "tests/random_draws.h"

namespace warpstep::testing_support {
namespace {

using cases::Case;
using cases::Fill;
using Kind = Fill::Kind;

class RandomRows : RandomDraws {
 public:
  explicit RandomRows(std::uint32_t seed) : RandomDraws(seed, 2) {}

  Case build() {
    Case c;
    switch (drawn(11)) {
      case 0: add_batch_norm(c); break;
      case 1: add_layer_norm(c); break;
      case 2: add_layer_norm_grad(c); break;
      case 3: add_attention(c); break;
      case 4: add_cached_attention(c); break;
      case 5: add_embed(c); break;
      case 6: add_loss(c); break;
      case 7: add_gelu(c); break;
      case 8: add_pixels(c); break;
      case 9: add_update(c); break;
      default: add_pointwise(c);
    }
    c.name += fmt::format(", draw {}", seed());
    return c;
  }

 private:
  Type rows(std::int64_t most, std::int64_t most_channels) {
    const std::int64_t count = extent(most);
    return {DType::f32, {count, extent(most_channels)}};
  }
  Type any() {
    return drawn(3) == 0 ? Type{DType::f32, {extent(5000)}}
           : coin()      ? rows(70, 300)
                         : images(12, 12, extent(70));
  }
  // The last node with a shortcut, as fusions make it; gives its outputs.
  template <class Op>
  std::vector<Tensor> with_shortcut(Case& c, const Op& op, const Type& type) {
    Graph& graph = c.graph;
    const Node plain = graph.nodes.back();
    graph.nodes.pop_back();
    std::vector<Tensor> in;
    for (const int id : plain.in) in.push_back({&graph, id});
    in.push_back(cases::input(c, "shortcut", type, {Kind::around, 0.5}));
    return graph.record(Phase::forward, op, in, plain.scope, Where::current());
  }

  // Of few rows, what is left of the gradient is what epsilon makes of it.
  void add_batch_norm(Case& c) {
    const Type x = images(12, 12, extent(300));
    const std::int64_t pixels = x.shape[0] * x.shape[1] * x.shape[2];
    BatchNorm op{.epsilon = pixels < 12 ? 0.5 : 1e-5, .training = pixels > 1 && drawn(3) > 0};
    batch_norm("bn", cases::input(c, "x", x, {Kind::around, 0.5}), op);
    op.add = coin();
    op.relu = coin();
    if (op.add)
      with_shortcut(c, op, x);
    else
      c.graph.nodes.back().op = op;
    c.fills[c.graph.buffers[1].value] = {Kind::around, 2};
    if (op.relu) c.fusion = op.add ? fusion::norm_add_relu : fusion::norm_relu;
    c.name = fmt::format("norm/{}{}{}{}", x.text(), op.add ? " +add" : "", op.relu ? " +relu" : "",
                         op.training ? "" : ", running statistics");
  }

  void add_layer_norm(Case& c) {
    const Type x = rows(70, 2100);
    LayerNorm op{.epsilon = x.shape[1] < 8 ? 0.5 : 1e-5, .bias = coin()};
    layer_norm("ln", cases::input(c, "x", x, {Kind::around, 0.5}), op);
    op.add = coin();
    c.name = fmt::format("layer_norm/{}{}{}", x.text(), op.bias ? "" : " without bias",
                         op.add ? " +add" : "");
    if (!op.add) return;
    const std::vector<Tensor> out = with_shortcut(c, op, x);
    if (coin()) add(out[0], out[3]);
  }

  void add_layer_norm_grad(Case& c) {
    const Type type = rows(400, 1100), of_rows{DType::f32, {type.shape[0]}};
    const LayerNormGrad op{.bias = coin(), .sum = coin(), .bias_gradient = drawn(3) == 0};
    std::vector<Tensor> in{
        cases::input(c, "d_y", type), cases::input(c, "s", type, {Kind::around, 0.5}),
        cases::input(c, "gamma", {DType::f32, {type.shape[1]}}), cases::input(c, "mean", of_rows),
        cases::input(c, "inv_std", of_rows, {Kind::around, 2})};
    if (op.sum) in.push_back(cases::input(c, "d_s2", type));
    cases::record(c, op, in);
    if (op.bias_gradient) c.fusion = fusion::dgrad_bias;
    c.name =
        fmt::format("layer_norm/gradient of {}{}{}{}", type.text(), op.bias ? "" : " without bias",
                    op.sum ? ", of two users" : "", op.bias_gradient ? ", its sums" : "");
  }

  void add_attention(Case& c) {
    const bool is_long = drawn(4) == 0;  // several blocks of keys
    Attention op{.heads = from_to(1, is_long ? 2 : 4),
                 .sequence = is_long ? from_to(250, 300) : extent(90),
                 .causal = coin(),
                 .dropout = drawn(3) == 0 ? 0.25 : 0,
                 .layer = 3};
    const std::int64_t features = is_long ? from_to(1, 20) : extent(128),
                       sequences = is_long ? 1 : from_to(1, 3);
    const Type qkv{DType::f32, {sequences * op.sequence, 3 * op.heads * features}};
    std::vector<Tensor> in{cases::input(c, "qkv", qkv, {Kind::centered, 2})};
    if (op.dropout > 0) in.push_back(c.graph.step_state());
    cases::record(c, op, in);
    c.name = fmt::format("attention/{} sequences of {}, {} heads of {}{}{}", sequences, op.sequence,
                         op.heads, features, op.causal ? "" : ", all seen",
                         op.dropout > 0 ? ", dropout" : "");
  }

  void add_cached_attention(Case& c) {
    const CachedAttention op{.heads = from_to(1, 4), .sequence = coin() ? 1 : from_to(1, 70)};
    const std::int64_t sequences = from_to(1, 3), width = op.heads * extent(130);
    const std::int64_t first = drawn(4) == 0 ? from_to(200, 300) : drawn(100),
                       positions = first + op.sequence + drawn(9);
    const Tensor qkv = cases::input(c, "qkv", {DType::f32, {sequences * op.sequence, 3 * width}},
                                    {Kind::centered, 2});
    const Tensor cache = c.graph.buffer("cache", {sequences, positions, 2 * width}, {0}, false);
    c.fills[cache.id] = {Kind::centered, 2};
    const Fill place{Kind::constant, static_cast<double>(first)};
    cases::record(c, op, {qkv, cache, cases::input(c, "position", {DType::i32, {1}}, place)});
    c.name = fmt::format("decode/{} sequences of {} at {} of {}, {} heads of {}", sequences,
                         op.sequence, first, positions, op.heads, width / op.heads);
  }

  void add_embed(Case& c) {
    Embedding of{.vocabulary = extent(300), .sequence = extent(130), .width = extent(300)};
    of.context = of.sequence + drawn(3);
    const Type type{DType::i32, {of.sequence * from_to(1, 6)}};
    const Fill fill{coin() ? Kind::labels : Kind::ends, static_cast<double>(of.vocabulary)};
    const Tensor tokens = cases::input(c, "tokens", type, fill);
    const Tensor order = cases::input(c, "order", type, {Kind::order, 1, tokens.id});
    const Tensor x = embed("wte", "wpe", tokens, order, of);
    const bool tied = coin();
    if (tied) tied_head("lm_head", x, x);
    c.name = fmt::format("embed/{} tokens of {} in sequences of {} to {}{}", type.shape[0],
                         of.vocabulary, of.sequence, of.width, tied ? ", tied" : "");
  }

  void add_loss(Case& c) {
    const std::int64_t rows = extent(140), classes = extent(drawn(6) == 0 ? 5000 : 300);
    const SoftmaxXent op{.gradient = drawn(4) > 0,
                         .mixed = coin(),
                         .smoothing = coin() ? 0 : 0.1,
                         .weighted = coin()};
    const Kind kind = coin() ? Kind::labels : Kind::padded;
    const auto scale = static_cast<double>(classes);
    std::vector<Tensor> in{
        cases::input(c, "logits", {DType::f32, {rows, classes}}, {Kind::centered, 3}),
        cases::input(c, "labels", {DType::i32, {rows}}, {kind, scale})};
    if (op.mixed) in.push_back(cases::input(c, "rows", row_plans_type(rows), {Kind::plans, scale}));
    if (op.weighted) {
      in.push_back(c.graph.buffer("loss.weight", {classes}, {1}, false));
      c.fills[in.back().id] = {Kind::positive, 3};
    }
    cases::record(c, op, in);
    c.name = fmt::format("loss/{}x{}{}{}{}{}", rows, classes, op.mixed ? ", mixed" : "",
                         op.weighted ? ", weighted" : "", op.smoothing > 0 ? ", smoothed" : "",
                         kind == Kind::padded ? ", padded" : "");
  }

  void add_gelu(Case& c) {
    const Type x = any();
    const Gelu op{.tanh = coin()};
    gelu(cases::input(c, "x", x, {Kind::centered, coin() ? 4.0 : 30.0}), op);
    c.name = fmt::format("gelu/{} of {}", op.tanh ? "tanh" : "erf", x.text());
  }

  void add_pixels(Case& c) {
    PixelPlan plan{.channels = static_cast<int>(from_to(1, 3))};
    for (std::size_t k = 0; k < idx(plan.channels); ++k) {
      plan.m[k] = {0.001F, -0.002F, 0.003F};
      plan.shift[k] = 0.25F * static_cast<float>(k) - 0.5F;
    }
    if (coin()) plan.mask_threshold = static_cast<std::uint32_t>(from_to(1, 65536));
    plan.dilate = coin();
    plan.mix = coin();
    const Shape images{from_to(1, 5), from_to(1, 40), from_to(1, 80), plan.channels};
    const Type rows = row_plans_type(from_to(1, 6));
    const ImageExtent out{from_to(1, 40), from_to(1, 80)};
    const Tensor x = cases::input(c, "images", {DType::u8, images}, {Kind::pixels});
    const Fill plans{Kind::plans, static_cast<double>(images[0])};
    augment(x, cases::input(c, "rows", rows, plans), plan, out);
    c.name = fmt::format("pixels/augment {} to {} of {}x{}, mask {}", images.text(), rows.text(),
                         out.height, out.width, plan.mask_threshold);
  }

  Optimizer optimizer() {
    Optimizer o;
    o.kind = static_cast<Optimizer::Kind>(drawn(5));
    if (o.kind == Optimizer::Kind::lars) o.kind = Optimizer::Kind::sgd;
    if (!o.adaptive() && coin()) o.momentum = 0.9;
    o.nesterov = o.kind == Optimizer::Kind::sgd && o.momentum > 0 && coin();
    if (coin()) o.weight_decay = 0.05;
    o.decays_vectors = coin();
    o.epsilon = 1e-4;
    if (drawn(3) == 0) o.moment_dtype = DType::bf16;
    return o;
  }

  // The first parameter is a matrix, so it is the first one in the store, too.
  void add_update(Case& c) {
    const std::int64_t count = from_to(1, 6);
    for (std::int64_t p = 0; p < count; ++p) {
      const std::string name = fmt::format("p{}", p);
      p == 0 || coin() ? cases::parameter(c, name, rows(70, 300).shape)
                       : cases::parameter(c, name, {from_to(8, 5000)});
    }
    const Optimizer o = optimizer();
    UpdateOptions options;
    if (coin()) options.clip_norm = 0.5;
    if (drawn(3) == 0) options.accumulate = 2;
    if (drawn(3) == 0) options.average_decay = 0.75;
    c.midway = options.accumulate > 1 && coin();
    Schedule schedule;
    schedule.peak = 1e-2;
    c.graph = add_optimizer(std::move(c.graph), o, schedule, options);
    const bool fused = coin();
    if (fused) c.graph = fuse(std::move(c.graph), FuseStage::updates, {});
    if (options.average_decay > 0) c.graph = add_average(std::move(c.graph), options.average_decay);
    cases::fill_moments(c, o);
    c.name = fmt::format("update/{} of {} parameters{}{}{}", name(o.kind), count,
                         fused ? " all at once" : "", options.accumulate > 1 ? ", accumulated" : "",
                         o.moment_dtype == DType::bf16 ? ", moments in bf16" : "");
  }

  void add_pointwise(Case& c) {
    const Type x = any();
    const Fill distinct{Kind::distinct, 1};
    switch (drawn(4)) {
      case 0:
        c.name = "pointwise/relu of " + x.text();
        relu(cases::input(c, "x", x, distinct));
        break;
      case 1:
        c.name = "pointwise/add of " + x.text();
        add(cases::input(c, "a", x), cases::input(c, "b", x));
        break;
      case 2: {
        const Dropout op{.rate = static_cast<double>(drawn(20)) / 20, .layer = 5};
        c.name = fmt::format("dropout/{} of {}", op.rate, x.text());
        cases::record(c, op, {cases::input(c, "x", x, distinct), c.graph.step_state()});
        break;
      }
      default: {
        const Shape shape = images(12, 12, from_to(1, 4)).shape;
        const std::vector<float> mean(idx(shape[3]), 0.45F), deviation(idx(shape[3]), 0.25F);
        c.name = "pointwise/normalize " + shape.text();
        normalize(cases::input(c, "x", {DType::u8, shape}, {Kind::pixels}), mean, deviation);
      }
    }
  }
};

}  // namespace

Case random_rows(std::uint32_t seed) {
  return RandomRows(seed).build();
}

}  // namespace warpstep::testing_support
