#include <nlohmann/json.hpp>

#include "engine/explain.h"
#include "engine/explain_facts.h"

namespace warpstep {

using namespace explained;

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
                      {"attributes", text(node.op)},
                      {"in", in},
                      {"out", out},
                      {"flops", call.cost.flops},
                      {"bytes", call.cost.bytes},
                      {"depth", call.cost.depth},
                      {"intensity", intensity(call.cost.flops, call.cost.bytes)},
                      {"implementation", call.kernel->implementation()},
                      {"workspace_bytes", call.kernel->workspace_bytes()},
                      {"arena_offset", nullptr}};
  if (!node.out.empty())
    if (const int b = program.plan().buffer_of_value[idx(node.out[0])]; b >= 0)
      json["arena_offset"] = program.plan().buffers[idx(b)].offset;
  return json;
}

nlohmann::json memory_json(const Program& program) {
  const MemoryPlan& plan = program.plan();
  const Persistent persistent = persistent_bytes(program);
  auto buffers = nlohmann::json::array();
  for (const MemoryPlan::Buffer& buffer : plan.buffers)
    buffers.push_back({{"name", buffer.name},
                       {"bytes", buffer.lifetime.bytes},
                       {"offset", buffer.offset},
                       {"first_call", call_number(program, buffer.lifetime.first)},
                       {"last_call", call_number(program, buffer.lifetime.last)}});
  return {{"arena_bytes", plan.arena_bytes},
          {"live_bound_bytes", plan.bound_bytes},
          {"separate_bytes", plan.separate_bytes},
          {"peak_call", call_number(program, plan.peak_node)},
          {"parameter_bytes", persistent.parameters},
          {"gradient_bytes", persistent.gradients},
          {"moment_bytes", persistent.moments},
          {"input_slot_bytes", persistent.inputs},
          {"resident_bytes", persistent.resident},
          {"total_bytes", plan.arena_bytes + persistent.bytes()},
          {"live_bytes", live_bytes(program)},
          {"buffers", buffers}};
}

}  // namespace

nlohmann::json explain_json(const Program& program) {
  const Graph& graph = program.graph();
  auto inputs = nlohmann::json::array(), calls = nlohmann::json::array();
  for (const int id : graph.inputs) inputs.push_back(value_json(graph, id));
  for (const Call& call : program.calls()) calls.push_back(call_json(program, call));
  const Elements elements = parameter_elements(graph);
  nlohmann::json totals{{"parameters", elements.count}, {"parameter_tensors", elements.tensors}};
  const auto add = [&](std::string_view key, const Total& t) {
    totals[std::string(key)] = {{"calls", t.calls}, {"flops", t.flops}, {"bytes", t.bytes}};
  };
  for (const std::string_view name : parts) add(name, total(program, name));
  add("step", total(program));
  return {{"backend",
           {{"name", program.backend().name()}, {"description", program.backend().describe()}}},
          {"inputs", inputs},
          {"calls", calls},
          {"memory", memory_json(program)},
          {"totals", totals}};
}

}  // namespace warpstep
