#include "engine/passes/precision.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/passes/update.h"

namespace warpstep {

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::tf32: return "tf32";
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
  }
  return "?";
}

Precision parse_precision(std::string_view text) {
  for (const Precision p : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16})
    if (name(p) == text) return p;
  fail<UsageError>("no precision is called '{}'; there are fp32, tf32, bf16 and fp16", text);
}

DType storage_dtype(Precision precision) {
  switch (precision) {
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
    default: return DType::f32;
  }
}

namespace {

class Lowering {
 public:
  Lowering(Graph& graph, Precision precision)
      : graph_(graph), storage_(storage_dtype(precision)), precision_(precision) {}

  void run() {
    lower_inputs();
    make_copies();
    for (Node& node : graph_.nodes) lower(node);
    if (precision_ == Precision::fp16 && clock()) scale_loss();
  }

 private:
  void lower_inputs() {
    std::vector<bool> f32(graph_.values.size());
    for (const Node& node : graph_.nodes)
      for (const int id : node.in)
        f32[idx(id)] = f32[idx(id)] || has_f32_inputs(node.op) || is_of_channels(node.op, id);
    for (const int id : graph_.inputs) {
      Type& type = graph_.value(id).type;
      if (type.dtype == DType::f32 && type.shape.rank() > 0 && !f32[idx(id)]) type.dtype = storage_;
    }
  }

  // What a batch norm has one number per channel of is f32.
  bool is_of_channels(const AnyOp& op, int id) const {
    return reads_f32_parameters(op) && graph_.value(id).type.shape.rank() == 1;
  }

  // A norm's gain and bias, and whatever an update reads; what a norm normalises has the step's
  // dtype, also if it is a parameter.
  bool keeps_f32(const AnyOp& op, int id) const {
    return reads_f32_parameters(op) && (kind(op) == OpKind::update || is_of_channels(op, id));
  }

  void make_copies() {
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      const int id =
          graph_.add_value({storage_, graph_.value(graph_.parameters[p].value).type.shape},
                           Role::copy, graph_.parameters[p].name + " copy");
      graph_.value(id).owner = static_cast<int>(p);
      graph_.parameters[p].copy = id;
      if (const int gradient = graph_.parameters[p].gradient; gradient >= 0)
        graph_.value(gradient).type.dtype = storage_;
    }
  }

  // Ops compute with the copies; the types follow from the inputs' by the ops' own rules.
  void lower(Node& node) {
    if (auto* update = std::get_if<Update>(&node.op)) {
      update->copy = true;
      return add_copies(node, update->operands());
    }
    if (auto* all = std::get_if<UpdateAll>(&node.op)) {
      all->copy = true;
      return add_copies(node, Update{all->optimizer, true}.operands());
    }
    set_storage_dtype(node.op, storage_);
    for (int& id : node.in)
      if (graph_.value(id).role == Role::parameter && !keeps_f32(node.op, id))
        id = graph_.parameters[idx(graph_.value(id).owner)].copy;
    const Types out = infer(node.op, graph_.types(node.in));
    for (std::size_t i = 0; i < out.size(); ++i) graph_.value(node.out[i]).type = out[i];
  }

  // After the operands of each parameter in turn.
  void add_copies(Node& node, std::size_t operands) {
    std::vector<int> in;
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      in.push_back(node.in[i]);
      if ((i + 1) % (operands - 1) != 0) continue;
      const Value& parameter = graph_.value(node.in[i + 2 - operands]);
      in.push_back(graph_.parameters[idx(parameter.owner)].copy);
    }
    node.in = std::move(in);
  }

  Clock* clock() {
    for (Node& node : graph_.nodes)
      if (auto* found = std::get_if<Clock>(&node.op)) return found;
    return nullptr;
  }

  void scale_loss() {
    clock()->scaling.enabled = true;
    for (Node& node : graph_.nodes)
      if (set_scaled(node.op)) node.in.push_back(graph_.state);
    const auto first = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [](const Node& node) {
      return kind(node.op) == OpKind::update;
    });
    if (first == graph_.nodes.end() || !std::holds_alternative<CheckGradients>(first->op))
      graph_.nodes.insert(first, check_gradients(graph_, 0));
  }

  Graph& graph_;
  DType storage_;
  Precision precision_;
};

}  // namespace

Graph apply_precision(Graph graph, Precision precision) {
  if (storage_dtype(precision) != DType::f32) Lowering(graph, precision).run();
  return graph;
}

StepState in_precision(StepState state, Precision from, Precision to) {
  if ((from == Precision::fp16) == (to == Precision::fp16)) return state;
  state.good_steps = 0;
  state.loss_scale = to == Precision::fp16 ? LossScaling{}.initial : 1;
  return state;
}

}  // namespace warpstep
