#include "engine/explain/facts.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace warpstep {
namespace {

StepCost cost_of(const Graph& graph) {
  StepCost sum;
  for (const Node& node : graph.nodes) {
    if (is_view(node.op)) continue;
    ++sum.calls;
    sum.bytes += graph.cost(node).bytes;
  }
  return sum;
}

// The same function, which asks a backend's libraries only once about each op and its inputs.
Computes remembered(Computes computes) {
  struct Answer {
    AnyOp op;
    Types in;
    bool is_computed;
  };
  auto known = std::make_shared<std::vector<Answer>>();
  return [known, asks = std::move(computes)](const AnyOp& op, const Types& in) {
    const auto is_same = [&](const Answer& answer) { return answer.op == op && answer.in == in; };
    const auto found = std::ranges::find_if(*known, is_same);
    if (found != known->end()) return found->is_computed;
    return known->emplace_back(Answer{op, in, asks(op, in)}).is_computed;
  };
}

}  // namespace

std::string_view step_part(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::loss: return "loss";
    case Phase::data_grad:
    case Phase::weight_grad: return "backward";
    case Phase::update: return "update";
  }
  return "?";
}

CallTotals call_totals(const Program& program, std::string_view part) {
  CallTotals sum;
  for (const Call& call : program.calls()) {
    if (!part.empty() && step_part(call.phase) != part) continue;
    ++sum.calls;
    sum.flops += call.cost.flops;
    sum.bytes += call.cost.bytes;
  }
  return sum;
}

double arithmetic_intensity(double flops, double bytes) {
  return bytes > 0 ? flops / bytes : 0;
}

ParameterElements parameter_elements(const Graph& graph) {
  ParameterElements sum;
  for (const Parameter& parameter : graph.parameters) {
    ++sum.tensors;
    sum.count += graph.value(parameter.value).type.shape.count();
  }
  return sum;
}

std::size_t call_number(const Program& program, int node) {
  const auto calls = program.calls();
  return idx(std::count_if(calls.begin(), calls.end(),
                           [&](const Call& call) { return call.node <= node; }));
}

std::vector<std::size_t> live_bytes(const Program& program) {
  // First what each node changes, modulo 2^64; then of the calls' nodes alone.
  std::vector<std::size_t> live(program.graph().nodes.size() + 1);
  for (const MemoryPlan::Buffer& buffer : program.plan().buffers) {
    live[idx(buffer.lifetime.first)] += buffer.lifetime.bytes;
    live[idx(buffer.lifetime.last + 1)] -= buffer.lifetime.bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  std::vector<std::size_t> of_calls;
  for (const Call& call : program.calls()) of_calls.push_back(live[idx(call.node)]);
  return of_calls;
}

PersistentBytes persistent_bytes(const Program& program) {
  using Section = Store::Section;
  const Store& store = program.store();
  PersistentBytes bytes;
  bytes.parameters = store.section_bytes(Section::parameter);
  bytes.copies = store.section_bytes(Section::copy);
  bytes.gradients = store.section_bytes(Section::gradient);
  bytes.sums = store.section_bytes(Section::accumulator);
  bytes.averages = store.section_bytes(Section::average);
  bytes.moments = store.section_bytes(Section::moment1) + store.section_bytes(Section::moment2);
  for (const int id : program.graph().inputs) {
    const Value& value = program.graph().value(id);
    (value.role == Role::resident ? bytes.resident : bytes.inputs) += value.layout.bytes;
  }
  return bytes;
}

FusionGains fusion_gains(const Graph& model, StepOptions options) {
  if (options.computes) options.computes = remembered(std::move(options.computes));
  const StepCost fused = cost_of(compile_step(model, options));
  std::vector<FusionGain> rows;
  StepOptions none = options;
  for (const FusionRow& row : fusion_table()) {
    none.no_fuse.emplace(row.name);
    if (options.no_fuse.contains(row.name)) continue;
    StepOptions without = options;
    without.no_fuse.emplace(row.name);
    const StepCost other = cost_of(compile_step(model, without));
    if (other.calls != fused.calls || other.bytes != fused.bytes) rows.push_back({row.name, other});
  }
  return {cost_of(compile_step(model, none)), fused, rows};
}

}  // namespace warpstep
