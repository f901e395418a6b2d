// The plans that libraries made for a program's convolutions and matrix products.
#include <fmt/format.h>

#include "engine/explain.h"
#include "engine/explain_facts.h"
#include "engine/explain_table.h"

namespace warpstep {
namespace {

template <class... Op>
bool is_any_of(const AnyOp& op) {
  return (std::holds_alternative<Op>(op) || ...);
}

bool is_planned(const AnyOp& op) {
  return is_any_of<Conv, ConvDataGrad, ConvWeightGrad, Linear, LinearDataGrad, LinearWeightGrad,
                   NormConv, NormConvDataGrad, NormConvWeightGrad>(op);
}

// "f16 128x32x32x8": of the image or matrix that the call reads, as it is stored.
std::string input_text(const Value& value) {
  return fmt::format("{} {}", name(value.type.dtype),
                     value.layout.tag.empty() ? value.type.shape.text() : value.layout.tag);
}

}  // namespace

std::string explain_plans(const Program& program) {
  explained::Table table(
      {{"#", true}, {"call", false, 34}, {"reads", false, 22}, {"workspace", true}, {"plan"}});
  std::size_t largest = 0;
  for (const Call& call : program.calls()) {
    const Node& node = program.graph().nodes[idx(call.node)];
    if (!is_planned(node.op)) continue;
    const std::size_t workspace = call.kernel->workspace_bytes();
    largest = std::max(largest, workspace);
    table.add({fmt::format("{}", explained::call_number(program, call.node)),
               fmt::format("{} {}", call.title, text(node.op)),
               input_text(program.graph().value(node.in[0])),
               size_text(static_cast<double>(workspace)), call.kernel->implementation()});
  }
  return fmt::format("{}\nlargest workspace {}\n", table.text(),
                     size_text(static_cast<double>(largest)));
}

}  // namespace warpstep
