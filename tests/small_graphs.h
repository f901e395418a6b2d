// Graphs that tests of the passes rewrite, and what they look for in them.
#pragma once

#include <algorithm>

#include "engine/layers.h"

namespace warpstep::testing_support {

template <class Op>
std::ptrdiff_t count(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return std::holds_alternative<Op>(node.op); });
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

}  // namespace warpstep::testing_support
