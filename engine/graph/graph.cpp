#include "engine/graph/graph.h"

#include <algorithm>
#include <numeric>

#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/graph/model_line.h"
#include "engine/graph/step_state.h"

namespace warpstep {
namespace {

Role output_role(const Type& type) {
  if (type.shape.rank() == 0) return Role::statistic;
  return is_float(type.dtype) ? Role::activation : Role::index;
}

}  // namespace

std::string_view name(Role role) {
  switch (role) {
    case Role::input: return "input";
    case Role::resident: return "resident";
    case Role::activation: return "activation";
    case Role::statistic: return "statistic";
    case Role::index: return "index";
    case Role::mask: return "mask";
    case Role::parameter: return "parameter";
    case Role::buffer: return "buffer";
    case Role::gradient: return "gradient";
    case Role::moment: return "moment";
    case Role::copy: return "copy";
    case Role::accumulator: return "accumulator";
    case Role::average: return "average";
    case Role::state: return "state";
    case Role::report: return "report";
    case Role::sums: return "sums";
  }
  return "?";
}

std::string_view name(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::loss: return "loss";
    case Phase::data_grad: return "dgrad";
    case Phase::weight_grad: return "wgrad";
    case Phase::update: return "update";
  }
  return "?";
}

std::string Node::title() const {
  if (scope.empty()) return std::string(name(op));
  return fmt::format("{}/{}", scope, name(op));
}

Shape Parameter::torch_shape(const Shape& engine_shape) const {
  std::vector<std::int64_t> extents;
  for (const int axis : permutation) extents.push_back(view[axis]);
  if (engine_shape.rank() == static_cast<int>(extents.size())) return Shape(extents);
  // A linear layer after a flatten: [out, C, H, W] is stored as [out, C H W].
  std::vector<std::int64_t> merged{extents[0], 1};
  for (std::size_t i = 1; i < extents.size(); ++i) merged[1] *= extents[i];
  return Shape(merged);
}

const Type& Tensor::type() const {
  if (!graph) fail<UsageError>("a tensor that belongs to no graph: nothing was assigned to it");
  if (id < 0 || idx(id) >= graph->values.size())
    fail<UsageError>(
        "a tensor refers to value {} of a graph that has {}: the graph was moved away, for example "
        "by compile_step(std::move(graph)); record the whole model before that",
        id, graph->values.size());
  return graph->value(id).type;
}

int Graph::add_value(Type type, Role role, std::string value_name) {
  values.push_back(
      {.type = type, .role = role, .name = std::move(value_name), .owner = -1, .layout = {}});
  return static_cast<int>(values.size()) - 1;
}

Tensor Graph::input(std::string value_name, Type type, Role role) {
  if (!is_given(role))
    fail<UsageError>("input '{}': its role is {}; must be input or resident", value_name,
                     warpstep::name(role));
  inputs.push_back(add_value(type, role, std::move(value_name)));
  return {this, inputs.back()};
}

Tensor Graph::find_input(std::string_view name) {
  for (const int id : inputs)
    if (value(id).name == name) return {this, id};
  fail<Error>("this graph has no input '{}'", name);
}

Tensor Graph::buffer(std::string buffer_name, Shape shape, std::vector<float> initial, bool saved) {
  for (const Buffer& other : buffers)
    if (other.name == buffer_name)
      fail<ShapeError>("two buffers are called {}; give each layer its own name", buffer_name);
  for (const Parameter& parameter : parameters)
    if (parameter.name == buffer_name)
      fail<ShapeError>("a parameter and a buffer are called {}; give each its own name",
                       buffer_name);
  if (initial.size() != 1 && initial.size() != idx(shape.count()))
    fail<ShapeError>("{}: {} initial values for {}", buffer_name, initial.size(), shape.text());
  const int id = add_value({DType::f32, shape}, Role::buffer, buffer_name);
  value(id).owner = static_cast<int>(buffers.size());
  buffers.push_back({std::move(buffer_name), id, std::move(initial), saved});
  return {this, id};
}

Tensor Graph::step_state() {
  if (state < 0)
    state = add_value({DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}}, Role::state,
                      "step_state");
  return {this, state};
}

std::string model_line(Where where) {
  const std::string_view path = where.file_name();
  const auto folder = path.rfind('/', path.rfind('/') - 1);
  return fmt::format("{}:{}", folder == path.npos ? path : path.substr(folder + 1), where.line());
}

std::string model_line(const Node& node) {
  const bool is_of_model = node.phase != Phase::update && node.where.line() != 0;
  return is_of_model ? model_line(node.where) : std::string();
}

Node pass_node(AnyOp op, std::vector<int> in, std::string scope, Phase phase) {
  return {.op = std::move(op),
          .in = std::move(in),
          .out = {},
          .scope = std::move(scope),
          .phase = phase,
          .where = {}};
}

std::vector<Tensor> Graph::record(Phase phase, AnyOp op, const std::vector<Tensor>& in,
                                  std::string scope, Where where) {
  Node node{.op = std::move(op),
            .in = {},
            .out = {},
            .scope = std::move(scope),
            .phase = phase,
            .where = where};
  Types out;
  try {
    for (const Tensor& tensor : in) {
      tensor.type();  // throws for one of no graph
      if (tensor.graph != this)
        fail<UsageError>("input {} belongs to another graph; record all layers of a model in one",
                         node.in.size());
      node.in.push_back(tensor.id);
    }
    out = naming(node.title(), "infer()", [&] { return infer(node.op, types(node.in)); });
  } catch (const UsageError& error) {
    fail<UsageError>("{} {}: {}", model_line(where), node.title(), error.what());
  } catch (const ShapeError& error) {
    fail<ShapeError>("{} {}: {}", model_line(where), node.title(), error.what());
  }
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string suffix = out.size() > 1 ? fmt::format(".{}", i) : "";
    node.out.push_back(add_value(out[i], output_role(out[i]), node.title() + suffix));
    tensors.push_back({this, node.out.back()});
  }
  nodes.push_back(std::move(node));
  return tensors;
}

Types Graph::types(const std::vector<int>& ids) const {
  Types types;
  for (const int id : ids) types.push_back(value(id).type);
  return types;
}

Cost Graph::cost(const Node& node) const {
  Cost cost = warpstep::cost(node.op, types(node.in), types(node.out));
  if (is_shared_out(node.op)) {
    cost.flops /= static_cast<double>(shards.ranks);
    cost.bytes /= static_cast<double>(shards.ranks);
  }
  return cost;
}

std::int64_t Graph::steps_per_update() const {
  for (const Node& node : nodes)
    if (const auto* clock = std::get_if<Clock>(&node.op)) return clock->accumulate;
  return 1;
}

double Graph::share_of_steps(const Node& node) const {
  if (is_measure(node.op)) return 0;
  return runs_once_per_update(node.op) ? 1 / static_cast<double>(steps_per_update()) : 1;
}

std::vector<std::size_t> Graph::section_order() const {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_partition(
      order, [this](std::size_t p) { return value(parameters[p].value).type.shape.rank() >= 2; });
  return order;
}

std::vector<int> Graph::producers() const {
  std::vector<int> producers(values.size(), -1);
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const int id : nodes[n].out) producers[idx(id)] = static_cast<int>(n);
  return producers;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> uses(values.size(), 0);
  for (const Node& node : nodes)
    for (const int id : node.in) ++uses[idx(id)];
  for (const int id : {loss, correct, logits})
    if (id >= 0) ++uses[idx(id)];
  return uses;
}

}  // namespace warpstep
