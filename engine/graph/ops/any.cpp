#include "engine/graph/ops/any.h"

namespace warpstep {

std::string_view name(const AnyOp& op) {
  if (const auto* custom = std::get_if<Custom>(&op)) return custom->op->name();
  return std::visit([](const auto& o) { return std::string_view(o.name); }, op);
}

std::string text(const AnyOp& op) {
  return std::visit([](const auto& o) { return text(o); }, op);
}

Types infer(const AnyOp& op, const Types& in) {
  return std::visit([&](const auto& o) { return infer(o, in); }, op);
}

void grad(const AnyOp& op, Adjoint& adjoint) {
  std::visit([&](const auto& o) { grad(o, adjoint); }, op);
}

Cost cost(const AnyOp& op, const Types& in, const Types& out) {
  return std::visit([&](const auto& o) { return cost(o, in, out); }, op);
}

std::vector<int> in_place_inputs(const AnyOp& op) {
  if (std::holds_alternative<Add>(op)) return {0, 1};
  if (std::holds_alternative<Relu>(op) || std::holds_alternative<ReluGrad>(op) ||
      std::holds_alternative<LogSoftmaxGrad>(op) || std::holds_alternative<Dropout>(op) ||
      std::holds_alternative<NormGradApply>(op))
    return {0};
  if (const auto* custom = std::get_if<Custom>(&op)) return custom->op->in_place_inputs();
  return {};
}

}  // namespace warpstep
