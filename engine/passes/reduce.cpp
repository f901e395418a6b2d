#include "engine/passes/reduce.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/core/error.h"

namespace warpstep {
namespace {

std::size_t gradient_bytes(const Graph& graph, std::size_t p) {
  const Type& type = graph.value(graph.parameters[p].gradient).type;
  return idx(type.shape.count()) * size_bytes(type.dtype);
}

// The last node that needs each value as this rank has computed it: its producer, or a node that
// reads it, or a view of it, as an activation's gradient as well: add(x, parameter) gives both one
// gradient. What an update needs is the mean over the ranks.
std::vector<int> last_own_uses(const Graph& graph) {
  std::vector<int> last = graph.producers();
  std::vector<int> viewed(graph.values.size());
  std::iota(viewed.begin(), viewed.end(), 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const OpKind is = kind(node.op);
    if (is == OpKind::view) viewed[idx(node.out[0])] = viewed[idx(node.in[0])];
    if (is == OpKind::view || is == OpKind::update || is == OpKind::state || is == OpKind::measure)
      continue;
    for (const int id : node.in) {
      int& use = last[idx(viewed[idx(id)])];
      use = std::max(use, static_cast<int>(n));
    }
  }
  return last;
}

// The sums over steps, after the call that makes them.
Graph reduce_sums(Graph graph, const AllReduce& op) {
  std::vector<int> sums;
  for (const std::size_t p : graph.section_order()) sums.push_back(graph.parameters[p].accumulator);
  const auto last = std::ranges::find_if(
      graph.nodes, [](const Node& node) { return std::holds_alternative<Accumulate>(node.op); });
  graph.nodes.insert(last + 1, pass_node(op, std::move(sums)));
  return graph;
}

// The parameters, and what the next step computes with in their place, after the last update.
Graph gather_parameters(Graph graph, std::int64_t ranks) {
  std::vector<int> shared;
  for (const std::size_t p : graph.section_order()) shared.push_back(graph.parameters[p].value);
  if (graph.parameters.front().copy >= 0)
    for (const std::size_t p : graph.section_order()) shared.push_back(graph.parameters[p].copy);
  const auto last = std::find_if(graph.nodes.rbegin(), graph.nodes.rend(),
                                 [](const Node& node) { return is_update(node.op); });
  graph.nodes.insert(last.base(), pass_node(AllGather{ranks}, std::move(shared)));
  return graph;
}

}  // namespace

std::vector<Bucket> gradient_buckets(const Graph& graph, std::size_t bucket_bytes) {
  const std::vector<int> last = last_own_uses(graph);
  const auto ready = [&](std::size_t p) { return idx(last[idx(graph.parameters[p].gradient)]); };
  std::vector<std::size_t> order(graph.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, ready);
  std::vector<Bucket> buckets;
  for (const std::size_t p : order) {
    if (buckets.empty() || buckets.back().bytes >= bucket_bytes) buckets.emplace_back();
    Bucket& bucket = buckets.back();
    bucket.parameters.push_back(p);
    bucket.bytes += gradient_bytes(graph, p);
    bucket.ready = ready(p);
  }
  std::vector<std::size_t> place(order.size());
  const std::vector<std::size_t> section = graph.section_order();
  for (std::size_t i = 0; i < section.size(); ++i) place[section[i]] = i;
  for (Bucket& bucket : buckets)
    std::ranges::sort(bucket.parameters, {}, [&](std::size_t p) { return place[p]; });
  return buckets;
}

Graph synchronize_norms(Graph graph, const Replica& replica) {
  for (Node& node : graph.nodes)
    if (auto* norm = std::get_if<BatchNorm>(&node.op)) norm->ranks = replica.ranks;
  return graph;
}

Graph reduce_gradients(Graph graph, const Replica& replica, const Exchange& exchange, bool shards) {
  if (replica.ranks < 2 || graph.parameters.empty()) return graph;
  const AllReduce op{replica.ranks, shards};
  if (shards) {
    const auto needs_norms = [](const Node& n) { return std::holds_alternative<LarsScale>(n.op); };
    if (std::ranges::any_of(graph.nodes, needs_norms))
      fail<UsageError>(
          "LARS needs the norms of whole gradients, of which a rank has a part where "
          "the optimizer is sharded");
    graph.shards = replica;
    graph = gather_parameters(std::move(graph), replica.ranks);
  }
  if (graph.parameters.front().accumulator >= 0) return reduce_sums(std::move(graph), op);
  const std::size_t bucket_bytes =
      exchange.bucket_bytes > 0 ? exchange.bucket_bytes : std::numeric_limits<std::size_t>::max();
  const std::vector<Bucket> buckets = gradient_buckets(graph, bucket_bytes);
  std::vector<Node> nodes;
  std::size_t next = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    nodes.push_back(std::move(graph.nodes[n]));
    for (; next < buckets.size() && buckets[next].ready == n; ++next) {
      std::vector<int> gradients;
      for (const std::size_t p : buckets[next].parameters)
        gradients.push_back(graph.parameters[p].gradient);
      const bool overlaps = next + 1 < buckets.size();
      nodes.push_back(pass_node(op, std::move(gradients),
                                buckets.size() > 1 ? fmt::format("bucket{}", next) : "",
                                overlaps ? Phase::data_grad : Phase::update));
    }
  }
  graph.nodes = std::move(nodes);
  return graph;
}

}  // namespace warpstep
