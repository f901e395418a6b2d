// What the fusions rewrite graphs with.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/graph/graph.h"

namespace warpstep {

// A graph under rewriting: who makes and who uses each value, and the nodes that went away.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph)
      : graph_(graph),
        producers_(graph.producers()),
        uses_(graph.use_counts()),
        gone_(graph.nodes.size()) {}
  ~Rewriter() { sweep(); }
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // The node that makes `value`, if it is an Op whose output nothing else uses.
  template <class Op>
  Node* sole_producer(int value) {
    return uses_[idx(value)] == 1 ? producer<Op>(value) : nullptr;
  }
  // The same with any uses. Null for a node that went away: its value has another producer now.
  template <class Op>
  Node* producer(int value) {
    const int node = producers_[idx(value)];
    if (node < 0 || gone_[idx(node)]) return nullptr;
    if (!std::holds_alternative<Op>(graph_.nodes[idx(node)].op)) return nullptr;
    return &graph_.nodes[idx(node)];
  }
  // Whether `node` could read `value` where it stands.
  bool is_made_before(int value, const Node& node) const {
    return producers_[idx(value)] < &node - graph_.nodes.data();
  }
  // Whether a node between `first` and `last`, without them, reads `value`.
  bool is_read_between(int value, const Node& first, const Node& last) const {
    return std::any_of(&first + 1, &last, [&](const Node& node) {
      return std::find(node.in.begin(), node.in.end(), value) != node.in.end();
    });
  }
  void drop(const Node& node) { gone_[idx(&node - graph_.nodes.data())] = true; }

 private:
  void sweep() {
    std::size_t kept = 0;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!gone_[n]) {
        if (kept != n) graph_.nodes[kept] = std::move(graph_.nodes[n]);
        ++kept;
      }
    graph_.nodes.resize(kept);
  }

  Graph& graph_;
  std::vector<int> producers_, uses_;
  std::vector<bool> gone_;
};

}  // namespace warpstep
