#include "engine/explain/facts.h"

#include <algorithm>

namespace warpstep::explained {

std::string_view part(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::loss: return "loss";
    case Phase::data_grad:
    case Phase::weight_grad: return "backward";
    case Phase::update: return "update";
  }
  return "?";
}
Total total(const Program& program, std::string_view name) {
  Total sum;
  for (const Call& call : program.calls()) {
    if (!name.empty() && part(call.phase) != name) continue;
    ++sum.calls;
    sum.flops += call.cost.flops;
    sum.bytes += call.cost.bytes;
  }
  return sum;
}

double intensity(double flops, double bytes) {
  return bytes > 0 ? flops / bytes : 0;
}

Elements parameter_elements(const Graph& graph) {
  Elements sum;
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
  std::vector<std::size_t> live;
  for (const Call& call : program.calls()) {
    live.push_back(0);
    for (const int buffer : program.plan().alive_at(call.node))
      live.back() += program.plan().buffers[idx(buffer)].lifetime.bytes;
  }
  return live;
}

Persistent persistent_bytes(const Program& program) {
  using Section = Store::Section;
  const Store& store = program.store();
  Persistent bytes;
  bytes.parameters = store.section_bytes(Section::parameter);
  bytes.copies = store.section_bytes(Section::copy);
  bytes.gradients = store.section_bytes(Section::gradient);
  bytes.moments = store.section_bytes(Section::moment1) + store.section_bytes(Section::moment2);
  for (const int id : program.graph().inputs) {
    const Value& value = program.graph().value(id);
    (value.role == Role::resident ? bytes.resident : bytes.inputs) += value.layout.bytes;
  }
  return bytes;
}

}  // namespace warpstep::explained
