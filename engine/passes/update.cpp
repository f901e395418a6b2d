#include "engine/passes/update.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace warpstep {
namespace {

// What the updates read: gradients, or their sums over steps.
int summed_gradient(const Parameter& parameter) {
  return parameter.accumulator >= 0 ? parameter.accumulator : parameter.gradient;
}

// A value of the shape of parameter p, in f32.
int add_like(Graph& graph, std::size_t p, Role role, const std::string& prefix) {
  const Type type = graph.value(graph.parameters[p].value).type;
  const int id = graph.add_value(type, role, prefix + graph.parameters[p].name);
  graph.value(id).parameter = static_cast<int>(p);
  return id;
}

void add_accumulators(Graph& graph, std::int64_t steps) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (const std::size_t p : graph.section_order()) {
    const int sum = add_like(graph, p, Role::accumulator, "sum_d_");
    graph.parameters[p].accumulator = sum;
    in.push_back({&graph, graph.parameters[p].gradient});
    in.push_back({&graph, sum});
  }
  graph.record(Phase::update, Accumulate{steps}, in, "", Where::current());
}

void add_lars(Graph& graph, const Optimizer& optimizer) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (const std::size_t p : graph.section_order()) {
    in.push_back({&graph, graph.parameters[p].value});
    in.push_back({&graph, summed_gradient(graph.parameters[p])});
  }
  const LarsScale op{optimizer.trust, optimizer.weight_decay};
  graph.record(Phase::update, op, in, "", Where::current());
}

void add_update(Graph& graph, std::size_t p, const Optimizer& optimizer) {
  const Parameter parameter = graph.parameters[p];
  std::vector<Tensor> in{
      {&graph, parameter.value}, {&graph, summed_gradient(parameter)}, {&graph, graph.state}};
  for (int m = 0; m < optimizer.moments(); ++m) {
    const int id = add_like(graph, p, Role::moment, fmt::format("moment{}_", m + 1));
    graph.value(id).moment = m;
    graph.parameters[p].moments.push_back(id);
    in.push_back({&graph, id});
  }
  graph.record(Phase::update, Update{optimizer}, in, parameter.name, Where::current());
}

}  // namespace

Optimizer rule_of(const Optimizer& optimizer, const Type& parameter) {
  Optimizer rule = optimizer;
  const bool has_decayed = optimizer.kind == Optimizer::Kind::lars;  // LarsScale adds the decay
  if (has_decayed || (!optimizer.decays_vectors && parameter.shape.rank() < 2))
    rule.weight_decay = 0;
  return rule;
}

Node check_gradients(const Graph& graph, double clip_norm) {
  Node check{.op = CheckGradients{clip_norm},
             .in = {graph.state},
             .out = {},
             .scope = "",
             .phase = Phase::update,
             .where = {}};
  for (const std::size_t p : graph.section_order())
    check.in.push_back(summed_gradient(graph.parameters[p]));
  return check;
}

Graph add_optimizer(Graph graph, const Optimizer& optimizer, const Schedule& schedule,
                    const UpdateOptions& options) {
  const Tensor state = graph.step_state();
  if (options.accumulate > 1 || options.sums_in_f32) add_accumulators(graph, options.accumulate);
  if (options.clip_norm > 0) graph.nodes.push_back(check_gradients(graph, options.clip_norm));
  if (optimizer.kind == Optimizer::Kind::lars) add_lars(graph, optimizer);
  for (const std::size_t p : graph.section_order())
    add_update(graph, p, rule_of(optimizer, graph.value(graph.parameters[p].value).type));
  graph.record(Phase::update,
               Clock{.schedule = schedule,
                     .beta1 = optimizer.beta1,
                     .beta2 = optimizer.beta2,
                     .scaling = {},
                     .accumulate = options.accumulate,
                     .replica = options.replica},
               {state}, "", Where::current());
  std::rotate(graph.nodes.begin(), graph.nodes.end() - 1, graph.nodes.end());
  return graph;
}

namespace {

// The last node besides updates that reads or writes each value, or a view of it; -1: none.
std::vector<int> last_touches(const Graph& graph) {
  std::vector<int> root(graph.values.size()), last(graph.values.size(), -1);
  std::iota(root.begin(), root.end(), 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (is_view(node.op)) root[idx(node.out[0])] = root[idx(node.in[0])];
    if (std::holds_alternative<UpdateAll>(node.op)) continue;
    for (const auto* ids : {&node.in, &node.out})
      for (const int id : *ids) last[idx(root[idx(id)])] = static_cast<int>(n);
  }
  return last;
}

// Whether another call than the updates themselves works on gradients or parameters as a whole.
bool needs_whole_update(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) {
    const bool changes_state = kind(node.op) == OpKind::update || kind(node.op) == OpKind::state;
    return is_measure(node.op) || (changes_state && !std::holds_alternative<Clock>(node.op) &&
                                   !std::holds_alternative<UpdateAll>(node.op) &&
                                   !std::holds_alternative<Report>(node.op));
  });
}

// An UpdateAll as one for each of three runs of its parameters, of which the second is early.
struct Divided {
  Node before, early, after;
  int ready = -1;  // the node after which the second run may be updated; -1: none is early
};

Divided divide(const Graph& graph, const Node& node, const std::vector<int>& last) {
  const auto& all = std::get<UpdateAll>(node.op);
  const std::size_t width = Update{all.optimizer, all.copy}.operands(),
                    count = node.in.size() / width;
  const auto elements = [&](std::size_t i) {
    return graph.value(node.in[i * width]).type.shape.count();
  };
  const auto ready = [&](std::size_t i) {
    int latest = -1;
    for (std::size_t k = 0; k < width; ++k)
      if (const int id = node.in[i * width + k]; id != graph.state)
        latest = std::max(latest, last[idx(id)]);
    return latest;
  };
  std::int64_t total = 0;
  for (const Parameter& parameter : graph.parameters)
    total += graph.value(parameter.value).type.shape.count();
  std::size_t largest = 0;
  for (std::size_t i = 1; i < count; ++i)
    if (elements(i) > elements(largest)) largest = i;
  const int at = ready(largest);
  const bool something_follows = std::any_of(
      graph.nodes.begin() + at + 1, graph.nodes.end(),
      [](const Node& n) { return n.phase == Phase::data_grad || n.phase == Phase::weight_grad; });
  if (4 * elements(largest) < total || !something_follows) return {};

  std::size_t first = largest, end = largest + 1;
  while (first > 0 && ready(first - 1) <= at) --first;
  while (end < count && ready(end) <= at) ++end;
  const auto run = [&](std::size_t from, std::size_t to) {
    Node part = node;
    part.in.assign(node.in.begin() + static_cast<std::ptrdiff_t>(from * width),
                   node.in.begin() + static_cast<std::ptrdiff_t>(to * width));
    return part;
  };
  Divided divided{run(0, first), run(first, end), run(end, count), at};
  std::get<UpdateAll>(divided.early.op).beside = true;
  const int parameter = graph.value(node.in[largest * width]).parameter;
  divided.early.scope = graph.parameters[idx(parameter)].name;
  return divided;
}

}  // namespace

void update_early(Graph& graph) {
  if (needs_whole_update(graph)) return;
  const std::vector<int> last = last_touches(graph);
  std::vector<std::vector<Node>> early(graph.nodes.size()), instead(graph.nodes.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!std::holds_alternative<UpdateAll>(graph.nodes[n].op)) continue;
    Divided divided = divide(graph, graph.nodes[n], last);
    if (divided.ready < 0) continue;
    early[idx(divided.ready)].push_back(std::move(divided.early));
    for (Node* part : {&divided.before, &divided.after})
      if (!part->in.empty()) instead[n].push_back(std::move(*part));
    graph.nodes[n].in.clear();
  }
  std::vector<Node> nodes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!std::holds_alternative<UpdateAll>(graph.nodes[n].op) || !graph.nodes[n].in.empty())
      nodes.push_back(std::move(graph.nodes[n]));
    for (std::vector<Node>* more : {&instead[n], &early[n]})
      std::ranges::move(*more, std::back_inserter(nodes));
  }
  graph.nodes = std::move(nodes);
}

Graph add_average(Graph graph, double decay) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (const std::size_t p : graph.section_order()) {
    const int average = add_like(graph, p, Role::average, "ema_");
    graph.parameters[p].average = average;
    in.push_back({&graph, graph.parameters[p].value});
    in.push_back({&graph, average});
  }
  graph.record(Phase::update, Average{decay}, in, "", Where::current());
  return graph;
}

Graph add_report(Graph graph) {
  graph.report = graph.add_value({DType::u8, {report_ring * std::int64_t{sizeof(StepReport)}}},
                                 Role::report, "reports");
  std::vector<Tensor> in{{&graph, graph.loss}};
  if (graph.correct >= 0) in.push_back({&graph, graph.correct});
  in.insert(in.end(), {{&graph, graph.state}, {&graph, graph.report}});
  graph.record(Phase::update, Report{}, in, "", Where::current());
  return graph;
}

}  // namespace warpstep
