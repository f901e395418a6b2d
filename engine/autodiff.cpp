#include "engine/autodiff.h"

#include <algorithm>

#include "engine/core/error.h"

namespace warpstep {
namespace {

// Values that depend on a parameter: only these need a gradient.
std::vector<bool> wanted_gradients(const Graph& graph) {
  std::vector<bool> wanted(graph.values.size());
  for (std::size_t id = 0; id < graph.values.size(); ++id)
    wanted[id] = graph.values[id].role == Role::parameter;
  for (const Node& node : graph.nodes) {
    bool depends = false;
    for (const int id : node.in) depends = depends || wanted[idx(id)];
    for (const int id : node.out) wanted[idx(id)] = depends && is_float(graph.value(id).type.dtype);
  }
  return wanted;
}

// Nodes that the loss depends on: the others (top-1) have no adjoint to give.
std::vector<bool> reaches_loss(const Graph& graph) {
  std::vector<bool> value(graph.values.size()), node(graph.nodes.size());
  value[idx(graph.loss)] = true;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    for (const int id : graph.nodes[n].out) node[n] = node[n] || value[idx(id)];
    if (node[n])
      for (const int id : graph.nodes[n].in) value[idx(id)] = true;
  }
  return node;
}

// Cross-entropy gives the gradient of the mean loss itself, whatever arrives: it can be nothing but
// the graph's loss. Any other loss begins with a gradient of 1, or the loss scale.
bool gives_own_gradient(const Graph& graph, const Node& node) {
  if (!std::holds_alternative<Nll>(node.op) && !std::holds_alternative<SoftmaxXent>(node.op))
    return false;
  if (node.out[0] != graph.loss)
    fail<Error>("{}: cross-entropy must be the loss itself, not a part of another one",
                node.title());
  return true;
}

}  // namespace

Tensor Adjoint::d_out(int i) const {
  const int id = gradients_[idx(out(i).id)];
  if (id < 0) fail<Error>("{}: no gradient arrives from the loss", node_.title());
  return {&graph_, id};
}

void Adjoint::give(int i, Tensor gradient) {
  int& slot = gradients_[idx(in(i).id)];
  if (slot < 0) {
    slot = gradient.id;
    return;
  }
  const int sum = record(Phase::data_grad, Add{}, {{&graph_, slot}, gradient})[0].id;
  // The parts of a parameter's gradient are stored as the parameter is.
  if (const Value& value = graph_.value(in(i).id); value.role == Role::parameter)
    for (const int part : {slot, gradient.id, sum}) graph_.value(part).parameter = value.parameter;
  slot = sum;
}

Graph differentiate(Graph graph) {
  if (graph.loss < 0)
    fail<Error>(
        "this graph has no loss to differentiate; end the model with cross_entropy() or "
        "set_loss()");
  const std::vector<bool> wanted = wanted_gradients(graph);
  const std::vector<bool> reaches = reaches_loss(graph);
  std::vector<int> gradients(graph.values.size(), -1);
  const std::size_t forward_nodes = graph.nodes.size();
  for (std::size_t n = forward_nodes; n-- > 0;) {
    const Node node = graph.nodes[n];
    const bool trained =
        std::any_of(node.in.begin(), node.in.end(), [&](int id) { return wanted[idx(id)]; });
    if (!reaches[n] || !trained) continue;
    if (!gives_own_gradient(graph, node) && gradients[idx(graph.loss)] < 0)
      gradients[idx(graph.loss)] =
          graph.record(Phase::data_grad, LossGrad{}, {}, node.scope, node.where)[0].id;
    Adjoint adjoint(graph, node, gradients, wanted);
    grad(node.op, adjoint);
  }
  for (Parameter& parameter : graph.parameters) {
    parameter.gradient = gradients[idx(parameter.value)];
    if (parameter.gradient < 0)
      fail<Error>("the loss does not depend on parameter {}; remove the layer or use its output",
                  parameter.name);
    Value& gradient = graph.value(parameter.gradient);
    // The store keeps each parameter's gradient apart.
    const int producer = graph.producers()[idx(parameter.gradient)];
    if (gradient.role == Role::gradient || is_view(graph.nodes[idx(producer)].op))
      fail<Error>(
          "the gradient of parameter {} is at the same time that of another value ({}): sums and "
          "reshapes of parameters themselves are not trained; compute them in an op of your own "
          "(docs/custom-op.md)",
          parameter.name, gradient.name);
    gradient.role = Role::gradient;
    gradient.name = "d_" + parameter.name;
    gradient.parameter = graph.value(parameter.value).parameter;
  }
  return graph;
}

namespace {

// What the updates read: gradients, or their sums over steps.
int summed_gradient(const Parameter& parameter) {
  return parameter.accumulator >= 0 ? parameter.accumulator : parameter.gradient;
}

// A value beside each parameter, of its shape in f32.
int beside(Graph& graph, std::size_t p, Role role, const std::string& prefix) {
  const Type type = graph.value(graph.parameters[p].value).type;
  const int id = graph.add_value(type, role, prefix + graph.parameters[p].name);
  graph.value(id).parameter = static_cast<int>(p);
  return id;
}

void add_accumulators(Graph& graph, std::int64_t steps) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const int sum = beside(graph, p, Role::accumulator, "sum_d_");
    graph.parameters[p].accumulator = sum;
    in.push_back({&graph, graph.parameters[p].gradient});
    in.push_back({&graph, sum});
  }
  graph.record(Phase::update, Accumulate{steps}, in, "", Where::current());
}

void add_lars(Graph& graph, const Optimizer& optimizer) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (const Parameter& parameter : graph.parameters) {
    in.push_back({&graph, parameter.value});
    in.push_back({&graph, summed_gradient(parameter)});
  }
  const LarsScale op{optimizer.trust, optimizer.weight_decay};
  graph.record(Phase::update, op, in, "", Where::current());
}

void add_update(Graph& graph, std::size_t p, const Optimizer& optimizer) {
  const Parameter parameter = graph.parameters[p];
  std::vector<Tensor> in{
      {&graph, parameter.value}, {&graph, summed_gradient(parameter)}, {&graph, graph.state}};
  for (int m = 0; m < optimizer.moments(); ++m) {
    const int id = beside(graph, p, Role::moment, fmt::format("moment{}_", m + 1));
    graph.value(id).moment = m;
    graph.parameters[p].moments.push_back(id);
    in.push_back({&graph, id});
  }
  graph.record(Phase::update, Update{optimizer}, in, parameter.name, Where::current());
}

}  // namespace

Node check_gradients(const Graph& graph, double clip_norm) {
  Node check{.op = CheckGradients{clip_norm},
             .in = {graph.state},
             .out = {},
             .scope = "",
             .phase = Phase::update,
             .where = Where::current()};
  for (const Parameter& parameter : graph.parameters)
    check.in.push_back(summed_gradient(parameter));
  return check;
}

Graph add_optimizer(Graph graph, const Optimizer& optimizer, const Schedule& schedule,
                    const UpdateOptions& options) {
  const Tensor state = graph.step_state();
  if (options.accumulate > 1) add_accumulators(graph, options.accumulate);
  if (options.clip_norm > 0) graph.nodes.push_back(check_gradients(graph, options.clip_norm));
  Optimizer rule = optimizer;
  if (optimizer.kind == Optimizer::Kind::lars) {
    add_lars(graph, optimizer);
    rule.weight_decay = 0;  // LARS has added it
  }
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) add_update(graph, p, rule);
  graph.record(Phase::update,
               Clock{.schedule = schedule,
                     .beta1 = optimizer.beta1,
                     .beta2 = optimizer.beta2,
                     .scaling = {},
                     .accumulate = options.accumulate},
               {state}, "", Where::current());
  std::rotate(graph.nodes.begin(), graph.nodes.end() - 1, graph.nodes.end());
  return graph;
}

Graph add_average(Graph graph, double decay) {
  std::vector<Tensor> in{{&graph, graph.state}};
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const int average = beside(graph, p, Role::average, "ema_");
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
