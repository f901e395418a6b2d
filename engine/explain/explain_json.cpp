#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/explain/explain.h"
#include "engine/explain/facts.h"
#include "engine/graph/model_line.h"

namespace warpstep {
namespace {

nlohmann::json value_json(const Graph& graph, int id) {
  const Value& value = graph.value(id);
  return {{"name", value.name},
          {"dtype", name(value.type.dtype)},
          {"shape", value.type.shape.extents()},
          {"layout", value.layout.tag}};
}

nlohmann::json call_json(const Program& program, const Call& call) {
  const Graph& graph = program.graph();
  const Node& node = graph.nodes[idx(call.node)];
  auto in = nlohmann::json::array(), out = nlohmann::json::array();
  for (const int id : node.in) in.push_back(value_json(graph, id));
  for (const int id : node.out) out.push_back(value_json(graph, id));
  nlohmann::json json{{"number", call_number(program, call.node)},
                      {"title", call.title},
                      {"op", name(node.op)},
                      {"layer", node.scope},
                      {"phase", name(call.phase)},
                      {"source", model_line(node)},
                      {"attributes", text(node.op)},
                      {"in", in},
                      {"out", out},
                      {"flops", call.cost.flops},
                      {"executed_flops", call.executed_flops()},
                      {"bytes", call.cost.bytes},
                      {"depth", call.cost.depth},
                      {"intensity", arithmetic_intensity(call.cost.flops, call.cost.bytes)},
                      {"implementation", call.kernel->implementation()},
                      {"workspace_bytes", call.kernel->workspace_bytes()},
                      {"arena_offset", nullptr}};
  if (!node.out.empty())
    if (const int b = program.plan().buffer_of_value[idx(node.out[0])]; b >= 0)
      json["arena_offset"] = program.plan().buffers[idx(b)].offset;
  return json;
}

// The owner of a buffer in the arena: the layer whose node wrote it first, and its purpose.
nlohmann::json owner_json(const Program& program, std::size_t buffer) {
  const Graph& graph = program.graph();
  const MemoryPlan& plan = program.plan();
  const Node& writer = graph.nodes[idx(plan.buffers[buffer].lifetime.first)];
  const auto is_workspace = std::find(plan.workspace_of_node.begin(), plan.workspace_of_node.end(),
                                      static_cast<int>(buffer));
  if (is_workspace != plan.workspace_of_node.end())
    return {{"layer", writer.scope}, {"kind", "workspace"}};
  const auto value =
      std::find(plan.buffer_of_value.begin(), plan.buffer_of_value.end(), static_cast<int>(buffer));
  const Role role = value == plan.buffer_of_value.end()
                        ? Role::activation
                        : graph.values[idx(value - plan.buffer_of_value.begin())].role;
  const bool backward = writer.phase == Phase::data_grad || writer.phase == Phase::weight_grad;
  std::string kind(name(role));
  if (role == Role::activation && backward) kind = "activation gradient";
  return {{"layer", writer.scope}, {"kind", kind}};
}

// Of a parameter's moments this rank keeps its share alone.
std::size_t own_moment_bytes(const Graph& graph, const Sections& all, std::size_t parameter,
                             std::size_t bytes) {
  const std::size_t stored = graph.value(graph.parameters[parameter].value).layout.bytes;
  const SectionRun run{.begin = static_cast<std::int64_t>(all.offsets[parameter] / sizeof(float)),
                       .elements = static_cast<std::int64_t>(stored / sizeof(float))};
  if (run.elements == 0) return bytes;
  return bytes / idx(run.elements) * idx(own_part(graph, run).elements);
}

nlohmann::json persistent_json(const Graph& graph) {
  auto list = nlohmann::json::array();
  const auto add_bytes = [&](int id, std::string_view layer, std::size_t bytes) {
    if (bytes == 0) return;
    const Value& value = graph.value(id);
    list.push_back(
        {{"name", value.name}, {"layer", layer}, {"kind", name(value.role)}, {"bytes", bytes}});
  };
  const auto add = [&](int id, std::string_view layer) {
    if (id >= 0) add_bytes(id, layer, graph.value(id).layout.bytes);
  };
  const Sections all = sections(graph);
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    const std::string layer = parameter.name.substr(0, parameter.name.rfind('.'));
    for (const int id : {parameter.value, parameter.copy, parameter.gradient, parameter.accumulator,
                         parameter.average})
      add(id, layer);
    for (const int moment : parameter.moments)
      add_bytes(moment, layer, own_moment_bytes(graph, all, p, graph.value(moment).layout.bytes));
  }
  for (const int id : graph.inputs) add(id, "input");
  return list;
}

nlohmann::json memory_json(const Program& program) {
  const MemoryPlan& plan = program.plan();
  const PersistentBytes persistent = persistent_bytes(program);
  auto buffers = nlohmann::json::array();
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const MemoryPlan::Buffer& buffer = plan.buffers[i];
    nlohmann::json json{{"name", buffer.name},
                        {"bytes", buffer.lifetime.bytes},
                        {"offset", buffer.offset},
                        {"first_call", call_number(program, buffer.lifetime.first)},
                        {"last_call", call_number(program, buffer.lifetime.last)}};
    json.update(owner_json(program, i));
    buffers.push_back(std::move(json));
  }
  return {{"arena_bytes", plan.arena_bytes},
          {"live_bound_bytes", plan.bound_bytes},
          {"separate_bytes", plan.separate_bytes},
          {"peak_call", call_number(program, plan.peak_node)},
          {"parameter_bytes", persistent.parameters},
          {"copy_bytes", persistent.copies},
          {"gradient_bytes", persistent.gradients},
          {"gradient_sum_bytes", persistent.sums},
          {"moment_bytes", persistent.moments},
          {"average_bytes", persistent.averages},
          {"input_slot_bytes", persistent.inputs},
          {"resident_bytes", persistent.resident},
          {"total_bytes", plan.arena_bytes + persistent.bytes()},
          {"live_bytes", live_bytes(program)},
          {"buffers", buffers},
          {"persistent", persistent_json(program.graph())}};
}

nlohmann::json cost_json(const StepCost& cost) {
  return {{"calls", cost.calls}, {"bytes", cost.bytes}};
}

}  // namespace

nlohmann::json explain_json(const Program& program) {
  const Graph& graph = program.graph();
  auto inputs = nlohmann::json::array(), calls = nlohmann::json::array();
  for (const int id : graph.inputs) inputs.push_back(value_json(graph, id));
  for (const Call& call : program.calls()) calls.push_back(call_json(program, call));
  const ParameterElements elements = parameter_elements(graph);
  nlohmann::json totals{{"parameters", elements.count}, {"parameter_tensors", elements.tensors}};
  const auto add = [&](std::string_view key, const CallTotals& t) {
    totals[std::string(key)] = {{"calls", t.calls}, {"flops", t.flops}, {"bytes", t.bytes}};
  };
  for (const std::string_view name : step_parts) add(name, call_totals(program, name));
  add("step", call_totals(program));
  return {{"backend",
           {{"name", program.backend().name()}, {"description", program.backend().describe()}}},
          {"inputs", inputs},
          {"calls", calls},
          {"memory", memory_json(program)},
          {"totals", totals}};
}

nlohmann::json fusions_json(const Graph& model, const StepOptions& options) {
  const FusionGains all = fusion_gains(model, options);
  auto rows = nlohmann::json::array();
  for (const FusionGain& gain : all.rows)
    rows.push_back({{"name", gain.row}, {"without", cost_json(gain.without)}});
  return {{"unfused", cost_json(all.unfused)}, {"fused", cost_json(all.fused)}, {"rows", rows}};
}

}  // namespace warpstep
