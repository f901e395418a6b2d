// Small graphs for tests of the passes, and functions to inspect them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/graph/layers.h"

namespace warpstep::testing_support {

template <class Op>
std::ptrdiff_t count(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return std::holds_alternative<Op>(node.op); });
}

// "scope: attributes" of every node of the op with this name.
inline std::vector<std::string> texts(const Graph& graph, std::string_view op) {
  std::vector<std::string> texts;
  for (const Node& node : graph.nodes)
    if (name(node.op) == op) texts.push_back(node.scope + ": " + text(node.op));
  return texts;
}

// h is used by the relu and by the sum.
inline Graph two_branches() {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {4, 6, 6, 2}});
  const Tensor labels = g.input("labels", {DType::i32, {4}});
  const std::vector<float> half{0.5F, 0.5F};
  const Tensor x = normalize(images, half, half);
  const Tensor h = conv("conv", x, {.out = 3, .padding = 1});
  cross_entropy(linear("fc", flatten(max_pool(add(relu(h), h))), {.out = 10}), labels);
  return g;
}

// A residual network: a first convolution, a pool, one block that projects its shortcut and one
// that does not, and the mean of each map.
struct Residual {
  std::int64_t batch = 4, size = 32;
  bool pool = true;
  double dropout = 0;
  bool average = false;  // pool between the blocks
};
inline Graph residual(const Residual& options = {}) {
  Graph g;
  const Tensor images =
      g.input("images", {DType::u8, {options.batch, options.size, options.size, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {options.batch}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const auto norm = [](const std::string& name, Tensor in, Conv op) {
    op.bias = false;
    return batch_norm(name + ".bn", conv(name, in, op));
  };
  Tensor x = normalize(images, half, half);
  x = relu(norm("stem", x, {.out = 16, .kernel = 7, .stride = 2, .padding = 3}));
  if (options.pool) x = max_pool(x, {.window = 3, .stride = 2, .padding = 1});
  for (const std::int64_t stride : {2, 1}) {
    const std::string block = stride == 2 ? "block1" : "block2";
    Tensor h = relu(norm(block + ".conv1", x, {.out = 16, .kernel = 1}));
    h = relu(norm(block + ".conv2", h, {.out = 16, .stride = stride, .padding = 1}));
    h = norm(block + ".conv3", h, {.out = 32, .kernel = 1});
    if (stride == 2) x = norm(block + ".shortcut", x, {.out = 32, .kernel = 1, .stride = 2});
    x = relu(add(h, x));
    if (options.average && stride == 2) x = avg_pool(x, {.window = 3, .stride = 2, .padding = 1});
  }
  if (options.dropout > 0) x = dropout(x, options.dropout);
  x = flatten(global_avg_pool(x));
  cross_entropy(linear("fc", x, {.out = 10}), labels);
  return g;
}

// A language model without attention: tokens and positions, two residual blocks, a norm and a head
// on the table of tokens or on one of its own.
struct Language {
  std::int64_t batch = 2, sequence = 8, vocabulary = 40, width = 24;
  bool tied = true;
};
inline Graph language(const Language& options = {}) {
  Graph g;
  const Type tokens{DType::i32, {options.batch * options.sequence}};
  const Tensor slot = g.input("tokens", tokens), order = g.input("order", tokens),
               labels = g.input("labels", tokens);
  const Tensor embedded = embed("wte", "wpe", slot, order,
                                {.vocabulary = options.vocabulary,
                                 .context = options.sequence + 2,
                                 .sequence = options.sequence,
                                 .width = options.width,
                                 .deviation = 0.1});
  Tensor x = embedded;
  for (const std::string block : {"h.0", "h.1"}) {
    Tensor y = linear(block + ".fc", layer_norm(block + ".ln", x), {.out = 2 * options.width});
    x = add(x, linear(block + ".proj", gelu(y, {.tanh = true}), {.out = options.width}));
  }
  x = layer_norm("ln_f", x);
  x = options.tied ? tied_head("lm_head", x, embedded)
                   : linear("lm_head", x, {.out = options.vocabulary, .bias = false});
  cross_entropy(x, labels);
  return g;
}

}  // namespace warpstep::testing_support
