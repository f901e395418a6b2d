#include "engine/passes/update.h"

#include <algorithm>
#include <cmath>

namespace warpstep {
namespace {

// What the updates read: gradients, or their sums over steps.
int summed_gradient(const Parameter& parameter) {
  return parameter.accumulator >= 0 ? parameter.accumulator : parameter.gradient;
}

// A value of the shape of parameter p.
int add_like(Graph& graph, std::size_t p, Role role, const std::string& prefix,
             DType dtype = DType::f32) {
  const Type type{dtype, graph.value(graph.parameters[p].value).type.shape};
  const int id = graph.add_value(type, role, prefix + graph.parameters[p].name);
  graph.value(id).owner = static_cast<int>(p);
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
    const int id =
        add_like(graph, p, Role::moment, fmt::format("moment{}_", m + 1), optimizer.moment_dtype);
    graph.value(id).moment = m;
    graph.parameters[p].moments.push_back(id);
    in.push_back({&graph, id});
  }
  graph.record(Phase::update, Update{optimizer}, in, parameter.name, Where::current());
}

// Numbers that would train nothing, or something else, in silence.
void require_settings(const Optimizer& optimizer, const Schedule& schedule,
                      const UpdateOptions& options) {
  if (options.accumulate < 1)
    fail<UsageError>("an update of {} steps; must be at least 1", options.accumulate);
  struct Setting {
    std::string_view name;
    double value;
    bool is_share = false;  // below 1
  };
  for (const Setting& setting : {Setting{"the learning rate", schedule.peak},
                                 {"the limit of gradients' norm", options.clip_norm},
                                 {"the decay of the weights' average", options.average_decay, true},
                                 {"momentum", optimizer.momentum},
                                 {"weight decay", optimizer.weight_decay},
                                 {"beta1", optimizer.beta1, true},
                                 {"beta2", optimizer.beta2, true},
                                 {"epsilon", optimizer.epsilon},
                                 {"alpha", optimizer.alpha, true},
                                 {"the trust coefficient", optimizer.trust}})
    if (!std::isfinite(setting.value) || setting.value < 0 ||
        (setting.is_share && setting.value >= 1))
      fail<UsageError>(
          "{} is {}; must be {}", setting.name, setting.value,
          setting.is_share ? "at least 0 and below 1" : "a finite number of at least 0");
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
  std::vector<int> in{graph.state};
  for (const std::size_t p : graph.section_order())
    in.push_back(summed_gradient(graph.parameters[p]));
  return pass_node(CheckGradients{clip_norm}, std::move(in));
}

Graph add_optimizer(Graph graph, const Optimizer& optimizer, const Schedule& schedule,
                    const UpdateOptions& options) {
  require_settings(optimizer, schedule, options);
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
