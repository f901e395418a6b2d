// What is computed: values, the nodes that make them, and the parameters among them. Passes take a
// graph and give one.
#pragma once

#include <array>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/ops/any.h"

namespace warpstep {

using Where = std::source_location;

enum class Phase : std::uint8_t { forward, loss, data_grad, weight_grad, update };
std::string_view name(Phase phase);

std::string_view name(Role role);
inline bool is_persistent(Role role) {
  return role >= Role::parameter;
}
inline bool is_given(Role role) {  // to each step, at an address that may change
  return role <= Role::resident;
}

// How a backend stores a value. An empty tag is the plain layout: rows of the logical shape,
// innermost last.
struct Layout {
  std::string tag;        // for people and for comparing: equal tags of one type are equal layouts
  std::size_t bytes = 0;  // 0 until the backend has chosen
  std::shared_ptr<const void> native;  // the backend's own description
};

struct Value {
  Type type;
  Role role = Role::activation;
  std::string name;
  // Index into Graph::parameters of what is kept of a parameter; of Role::buffer into
  // Graph::buffers; -1: none.
  int owner = -1;
  int moment = 0;  // for moments: the first or the second
  Layout layout;
};

struct Node {
  AnyOp op;
  std::vector<int> in, out;  // value ids
  std::string scope;         // of the layer: "conv2"
  Phase phase = Phase::forward;
  Where where;  // line of the model

  std::string title() const;  // "conv2/max_pool"; without the op where the layer is just that op
};

// A node without outputs that a pass adds to the step: it has no model line.
Node pass_node(AnyOp op, std::vector<int> in, std::string scope = "", Phase phase = Phase::update);

// How a parameter's elements begin: uniform in [-value, value), normal with deviation `value`, or
// all `value`.
struct Initial {
  enum class Kind : std::uint8_t { uniform, normal, constant };
  Kind kind = Kind::constant;
  double value = 0;
};

// A parameter in PyTorch's terms: weights travel as `torch_shape`, whose axes come from the
// engine's own by first seeing the value as `view` and then permuting: torch axis i is view axis
// permutation[i].
struct Parameter {
  std::string name;  // "conv1.weight", as in a state_dict
  int value = -1;
  int gradient = -1;         // made by differentiate()
  std::vector<int> moments;  // made with the optimiser
  int copy = -1;             // made by a precision of 16 bits
  int accumulator = -1;      // made by gradient accumulation
  int average = -1;          // made by an average of the weights
  Shape view;
  std::vector<int> permutation;
  Initial initial;

  Shape torch_shape(const Shape& engine_shape) const;
};

// What persists without being trained, PyTorch's register_buffer: f32, stored plain on every
// backend.
struct Buffer {
  std::string name;  // "bn1.running_mean"
  int value = -1;
  std::vector<float> initial;  // one an element, or one for all
  bool saved = true;           // in checkpoints; constants of the options are not
};

// A part of the model that training reports on, see engine/passes/statistics.h.
struct Block {
  std::string name;  // "h.3"
  int output = -1;   // value; -1: nothing is measured
  bool has_parameters = false;
};

class Graph;

// A handle that model code passes around.
struct Tensor {
  Graph* graph = nullptr;
  int id = -1;

  const Type& type() const;
  std::int64_t channels() const { return type().shape.back(); }
};

class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;  // in a valid order
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<int> inputs;  // the slots that a step is given, in order
  int logits = -1;          // set by models; loss and correct by the loss
  int loss = -1;
  int correct = -1;
  int state = -1;             // StepState; made by the first that wants it
  int report = -1;            // ring of StepReport; made with the optimiser, where there is a loss
  int block_sums = -1;        // made by add_statistics()
  std::vector<Block> blocks;  // a row of block_sums each
  Replica shards;             // with several ranks each keeps the moments of its share alone

  Value& value(int id) { return values[idx(id)]; }
  const Value& value(int id) const { return values[idx(id)]; }
  int add_value(Type type, Role role, std::string name);
  Tensor input(std::string name, Type type, Role role = Role::input);  // or Role::resident
  Tensor find_input(std::string_view name);                            // Error if there is none
  Tensor buffer(std::string name, Shape shape, std::vector<float> initial, bool saved = true);
  Tensor step_state();
  // Infers the outputs' types, adds them and the node; its errors name scope, op and model line.
  std::vector<Tensor> record(Phase phase, AnyOp op, const std::vector<Tensor>& in,
                             std::string scope, Where where);

  Types types(const std::vector<int>& ids) const;
  Cost cost(const Node& node) const;  // of one rank, in a step that runs the node
  std::int64_t steps_per_update() const;
  // The share of the steps that run the node, of 1; 0 of what measures, which most steps leave out.
  double share_of_steps(const Node& node) const;
  // Parameters in the order in which the store's sections hold them: those of rank 2 and more,
  // which an optimiser may decay alone, then the others.
  std::vector<std::size_t> section_order() const;
  std::vector<int> producers() const;  // node of each value, -1 for inputs and persistent values
  // Of each value, as an input of nodes; loss, correct and logits count as used once more.
  std::vector<int> use_counts() const;
};

}  // namespace warpstep
