#include "kernels/cases.h"

namespace warpstep::cases::layer_norm_cases {
namespace {

using Kind = Fill::Kind;

struct LayerNormSize {
  const char* label;
  std::int64_t rows, channels;
  Fill fill = {Kind::around, 0.5};
  bool smooth = true;
  bool heavy = false;
};

std::string form_of(const LayerNorm& op) {
  return std::string(op.bias ? "" : " without bias") + (op.add ? " +add" : "");
}

// The norm as models record it, or as the fusion with a sum makes it: the shortcut comes after the
// norm's own operands, and the sum is an output. Gives the outputs.
std::vector<Tensor> norm_of(Case& c, const LayerNormSize& size, const LayerNorm& op) {
  const Type type{DType::f32, {size.rows, size.channels}};
  LayerNorm plain = op;
  plain.add = false;
  layer_norm("ln", input(c, "x", type, size.fill), plain);
  c.smooth = size.smooth;
  c.heavy = size.heavy;
  Graph& graph = c.graph;
  std::vector<Tensor> in;
  for (const int id : graph.nodes.back().in) in.push_back({&graph, id});
  const std::string scope = graph.nodes.back().scope;
  if (!op.add) return {{&graph, graph.nodes.back().out[0]}};
  graph.nodes.pop_back();
  in.push_back(input(c, "shortcut", type, size.fill));
  return graph.record(Phase::forward, op, in, scope, Where::current());
}

void add_norm_of(List& list, const LayerNormSize& size, const LayerNorm& op) {
  list.add(size.label + form_of(op), [&](Case& c) { norm_of(c, size, op); });
}

// The sum has another reader: the adjoint adds its gradient, and may write over the other one.
void add_residual(List& list, const LayerNormSize& size, bool bias) {
  const LayerNorm op{.bias = bias, .add = true};
  list.add(size.label + form_of(op) + ", the sum is read again", [&](Case& c) {
    const std::vector<Tensor> out = norm_of(c, size, op);
    add(out[0], out[3]);
  });
}

// The adjoint for numbers that are not a forward's own: the mean of h is not 0.
void add_grad(List& list, const LayerNormSize& size, bool bias, bool sum, bool bias_gradient) {
  const std::string form = std::string(bias ? "" : " without bias") +
                           (sum ? ", gradient of two users" : ", gradient") +
                           (bias_gradient ? ", its sums" : "");
  const auto build = [&](Case& c) {
    const Type type{DType::f32, {size.rows, size.channels}}, rows{DType::f32, {size.rows}};
    std::vector<Tensor> in{input(c, "d_y", type), input(c, "s", type, size.fill),
                           input(c, "gamma", {DType::f32, {size.channels}}), input(c, "mean", rows),
                           input(c, "inv_std", rows, {Kind::around, 2})};
    if (sum) in.push_back(input(c, "d_s2", type));
    record(c, LayerNormGrad{.bias = bias, .sum = sum, .bias_gradient = bias_gradient}, in);
    c.heavy = size.heavy;
  };
  Case& added = list.add(size.label + form, build);
  if (bias_gradient) added.fusion = fusion::dgrad_bias;
}

void add_layer_norm(List list) {
  // One number lies at its mean, whatever it is: values whose sum 16 bits hold, too.
  for (const LayerNormSize& size : {
           LayerNormSize{"1 channel", 5, 1, {Kind::coarse, 1}},
           LayerNormSize{"7 channels", 3, 7},
           LayerNormSize{"one row of 48", 1, 48},
           LayerNormSize{"3 rows of 64", 3, 64},
           LayerNormSize{"64 rows of 20", 64, 20},
           LayerNormSize{"65 rows of 33", 65, 33},
           LayerNormSize{"300 rows of 48", 300, 48},
           LayerNormSize{"33 rows of 768", 33, 768},
           LayerNormSize{"3 rows of 1600", 3, 1600},
           LayerNormSize{"2 rows of 4100", 2, 4100},
           LayerNormSize{"9 rows of 1021", 9, 1021},
       }) {
    for (const bool bias : {true, false}) {
      for (const bool add : {false, true}) add_norm_of(list, size, {.bias = bias, .add = add});
      for (const bool sum : {false, true})
        for (const bool sums : {false, true}) add_grad(list, size, bias, sum, sums);
      add_residual(list, size, bias);
    }
  }
  // Rows for every block of an adjoint more than once, and rows that no block holds.
  for (const bool sums : {false, true})
    add_grad(list, {"2200 rows of 8", 2200, 8}, true, false, sums);
  add_residual(list, {"2 rows of 6200", 2, 6200}, true);
  for (const bool sums : {false, true})
    add_grad(list, {"2 rows of 6200", 2, 6200}, false, false, sums);
  // A variance from the mean of the squares has no digit left here. Not for a sum, which rounds by
  // 6e-5 itself.
  add_norm_of(list, {"mean 1e3, deviation 1, 1600 channels", 4, 1600, {Kind::around, 1e3}, false},
              {});
  for (const bool add : {false, true})
    add_norm_of(list, {"far from 0, 300 channels", 4, 300, {Kind::around, 30}}, {.add = add});
  for (const bool add : {false, true})
    for (const LayerNormSize& size :
         {LayerNormSize{"no variance, 48 channels", 3, 48, {Kind::constant, 0.75}},
          LayerNormSize{"no variance, 5 channels", 65, 5, {Kind::constant, 0.75}}})
      add_norm_of(list, size, {.add = add});
  add_norm_of(list, {"two values", 20, 96, {Kind::extreme, 3}}, {.epsilon = 0.5});
  // Blocks of a network: each norm reads the sum that the last one wrote.
  list.add("chain", [](Case& c) {
    const Type type{DType::f32, {12, 24}};
    const Tensor x = input(c, "x", type, {Kind::around, 0.5});
    const Tensor h = add(gelu(layer_norm("ln1", x), {.tanh = true}), x);
    const Tensor k = add(gelu(layer_norm("ln2", h, {.bias = false}), {.tanh = true}), h);
    layer_norm("ln3", k);
  });
  for (const LayerNormSize& size : {
           LayerNormSize{"gpt2 b8", 8192, 768, {Kind::around, 0.5}, true, true},
           LayerNormSize{"gpt2 xl", 2048, 1600, {Kind::around, 0.5}, true, true},
           LayerNormSize{"nano", 16384, 384, {Kind::around, 0.5}, true, true},
       }) {
    add_norm_of(list, size, {});
    add_residual(list, size, true);
  }
}

const Folder layer_norm_cases("layer_norm", add_layer_norm);

}  // namespace
}  // namespace warpstep::cases::layer_norm_cases
