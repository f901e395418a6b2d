#include "engine/passes/statistics.h"

#include <algorithm>
#include <map>

#include "engine/passes/update.h"

namespace warpstep {

std::string_view block_name(std::string_view name) {
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, end - begin))) return name.substr(0, end);
    begin = end + 1;
  }
  return name.substr(0, name.find('.'));
}

std::vector<Block> find_blocks(const Graph& model) {
  std::vector<Block> blocks;
  std::map<std::string, std::size_t, std::less<>> found;
  const auto block_of = [&](std::string_view name) {
    const std::string own(block_name(name));
    const auto [at, is_new] = found.emplace(own, blocks.size());
    if (is_new) blocks.push_back({.name = own});
    return at->second;
  };
  std::vector<int> of_value(model.values.size(), -1);
  for (const Node& node : model.nodes) {
    if (node.phase != Phase::forward || node.out.empty()) continue;
    int block = node.scope.empty() ? -1 : static_cast<int>(block_of(node.scope));
    for (const int id : node.in) block = std::max(block, of_value[idx(id)]);
    if (block < 0) continue;
    for (const int id : node.out) of_value[idx(id)] = block;
    if (is_float(model.value(node.out[0]).type.dtype)) blocks[idx(block)].output = node.out[0];
  }
  for (const Parameter& parameter : model.parameters) block_of(parameter.name);
  return blocks;
}

namespace {

// Where the calls of a step are inserted: in front of node `at` of the graph as it was.
struct Insertion {
  std::size_t at = 0;
  Node node;
};

void insert(Graph& graph, std::vector<Insertion> insertions) {
  std::stable_sort(insertions.begin(), insertions.end(),
                   [](const Insertion& a, const Insertion& b) { return a.at < b.at; });
  std::vector<Node> nodes;
  auto next = insertions.begin();
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (; next != insertions.end() && next->at == n; ++next)
      nodes.push_back(std::move(next->node));
    nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
}

std::size_t first_update(const Graph& graph) {
  const auto found = std::ranges::find_if(graph.nodes, is_update, &Node::op);
  return static_cast<std::size_t>(found - graph.nodes.begin());
}

}  // namespace

Graph add_statistics(Graph graph, std::vector<Block> blocks, const Optimizer& optimizer) {
  const auto rows = static_cast<std::int64_t>(blocks.size());
  graph.blocks = std::move(blocks);
  graph.block_sums =
      graph.add_value({DType::u8, {report_ring * rows * std::int64_t{sizeof(BlockSums)}}},
                      Role::sums, "block_sums");
  const std::vector<int> producers = graph.producers();
  std::vector<Insertion> insertions;
  for (std::int64_t b = 0; b < rows; ++b) {
    Block& block = graph.blocks[idx(b)];
    const int producer = block.output < 0 ? -1 : producers[idx(block.output)];
    if (producer < 0) {
      block.output = -1;
      continue;
    }
    insertions.push_back(
        {idx(producer) + 1,
         pass_node(ActivationStatistics{b, rows}, {graph.state, graph.block_sums, block.output},
                   block.name, Phase::forward)});
  }
  const std::size_t update = first_update(graph);
  for (const std::size_t p : graph.section_order()) {
    const Parameter& parameter = graph.parameters[p];
    const std::string_view name = block_name(parameter.name);
    const auto block = std::find_if(graph.blocks.begin(), graph.blocks.end(),
                                    [&](const Block& each) { return each.name == name; });
    std::vector<int> in{graph.state, graph.block_sums, parameter.value,
                        parameter.accumulator >= 0 ? parameter.accumulator : parameter.gradient};
    in.insert(in.end(), parameter.moments.begin(), parameter.moments.end());
    insertions.push_back(
        {update,
         pass_node(UpdateStatistics{rule_of(optimizer, graph.value(parameter.value).type),
                                    block - graph.blocks.begin(), rows, !block->has_parameters},
                   std::move(in), parameter.name, Phase::update)});
    block->has_parameters = true;
  }
  insert(graph, std::move(insertions));
  return graph;
}

}  // namespace warpstep
