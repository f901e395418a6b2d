#include "engine/passes/recompute.h"

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/passes/schedule.h"

namespace warpstep {
namespace {

bool is_inside(std::string_view scope, std::string_view prefix) {
  return scope == prefix ||
         (scope.size() > prefix.size() && scope.starts_with(prefix) && scope[prefix.size()] == '.');
}

bool is_backward(const Node& node) {
  return node.phase == Phase::data_grad || node.phase == Phase::weight_grad;
}

// Scopes of the forward half and what they are inside of: "layer1.0.bn1", "layer1.0", "layer1".
std::vector<std::string> known_scopes(const Graph& graph) {
  std::set<std::string> all;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    for (std::string scope = node.scope; !scope.empty();) {
      all.insert(scope);
      const std::size_t dot = scope.rfind('.');
      scope.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  return {all.begin(), all.end()};
}

void check_scopes(const Graph& graph, std::span<const std::string> scopes) {
  const std::vector<std::string> known = known_scopes(graph);
  for (std::size_t i = 0; i < scopes.size(); ++i) {
    if (std::find(known.begin(), known.end(), scopes[i]) == known.end()) {
      std::string outermost;
      for (const std::string& scope : known)
        if (scope.find('.') == std::string::npos)
          outermost += (outermost.empty() ? "" : ", ") + scope;
      fail<UsageError>("--recompute {}: the model has no layer of this name{}; there are {}",
                       scopes[i], suggestion(scopes[i], known), outermost);
    }
    for (std::size_t j = 0; j < i; ++j)
      if (is_inside(scopes[i], scopes[j]) || is_inside(scopes[j], scopes[i]))
        fail<UsageError>("--recompute {} and --recompute {}: one contains the other; give only one",
                         scopes[j], scopes[i]);
  }
}

// One scope's forward nodes, and what becomes of the values that they make.
class Segment {
 public:
  Segment(Graph& graph, const std::string& scope)
      : graph_(graph),
        scope_(scope),
        producers_(graph.producers()),
        kept_(graph.values.size(), true),
        cloned_(graph.nodes.size()) {}

  void run() {
    find_kept();
    const std::size_t at = find_clones();
    if (at < graph_.nodes.size()) insert_clones(at);
  }

 private:
  bool is_member(const Node& node) const {
    return node.phase == Phase::forward && is_inside(node.scope, scope_);
  }
  bool is_reader(const Node& node) const {
    return is_backward(node) && is_inside(node.scope, scope_);
  }

  // Only values of the scope's forward nodes that no other part of the backward half, nor the host,
  // reads are not kept.
  void find_kept() {
    for (const Node& node : graph_.nodes) {
      // To change a buffer twice is another step.
      if (!is_member(node) || may_change_buffer(graph_, node)) continue;
      // Statistics are few, and those of the first pass are as good.
      const std::size_t dropped = std::holds_alternative<BatchNorm>(node.op) ? 1 : node.out.size();
      for (std::size_t i = 0; i < dropped; ++i) kept_[idx(node.out[i])] = false;
    }
    for (const Node& node : graph_.nodes)
      if (node.phase != Phase::forward && !is_reader(node))
        for (const int id : node.in) keep(id);
    for (const int id : {graph_.loss, graph_.correct, graph_.logits})
      if (id >= 0) keep(id);
  }

  // A view is kept with what it views.
  void keep(int id) {
    kept_[idx(id)] = true;
    const int node = producers_[idx(id)];
    if (node >= 0 && is_view(graph_.nodes[idx(node)].op)) keep(graph_.nodes[idx(node)].in[0]);
  }

  // Marks the nodes to clone; the first backward node that reads what they make, or the end.
  std::size_t find_clones() {
    std::size_t first = graph_.nodes.size();
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!is_reader(graph_.nodes[n])) continue;
      for (const int id : graph_.nodes[n].in)
        if (!kept_[idx(id)]) {
          first = n;
          clone_producer(id);
        }
    }
    return first;
  }

  void clone_producer(int id) {
    if (kept_[idx(id)]) return;
    const auto node = idx(producers_[idx(id)]);
    if (cloned_[node]) return;
    cloned_[node] = true;
    for (const int in : graph_.nodes[node].in) clone_producer(in);
  }

  void insert_clones(std::size_t at) {
    std::vector<Node> clones;
    std::vector<int> again(graph_.values.size(), -1);
    const auto redirect = [&](std::vector<int>& ids) {
      for (int& id : ids)
        if (idx(id) < again.size() && again[idx(id)] >= 0 && !kept_[idx(id)]) id = again[idx(id)];
    };
    for (std::size_t n = 0; n < at; ++n) {
      if (!cloned_[n]) continue;
      Node clone = graph_.nodes[n];
      clone.phase = Phase::data_grad;
      // The running statistics have moved in the forward half: running += 0 (statistic - running).
      if (auto* norm = std::get_if<BatchNorm>(&clone.op)) norm->momentum = 0;
      redirect(clone.in);
      for (int& id : clone.out) {
        Value value = graph_.value(id);
        value.name += " again";
        graph_.values.push_back(std::move(value));
        again[idx(id)] = static_cast<int>(graph_.values.size()) - 1;
        id = again[idx(id)];
      }
      clones.push_back(std::move(clone));
    }
    for (std::size_t n = at; n < graph_.nodes.size(); ++n)
      if (is_reader(graph_.nodes[n])) redirect(graph_.nodes[n].in);
    graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(at), clones.begin(),
                        clones.end());
  }

  Graph& graph_;
  const std::string& scope_;
  std::vector<int> producers_;
  std::vector<bool> kept_;    // of values: stays as it is
  std::vector<bool> cloned_;  // of nodes
};

}  // namespace

Graph recompute(Graph graph, std::span<const std::string> scopes) {
  check_scopes(graph, scopes);
  for (const std::string& scope : scopes) Segment(graph, scope).run();
  return graph;
}

}  // namespace warpstep
