// An op of a user's own, defined outside of Warpstep: docs/custom-op.md shows one from end to end.
#pragma once

#include <memory>

#include "engine/graph/ops/op.h"

namespace warpstep {

class Graph;
class Kernel;
struct Node;

// What CustomOp::grad throws where it is not overridden.
class NoAdjoint : public Error {
 public:
  using Error::Error;
};

// What every op of the engine states about itself, as virtual functions. Objects are immutable and
// shared between graphs; attributes are their members. Values are plain on every backend: rows of
// the logical shape, innermost axis last, nothing between. In a 16-bit precision activations,
// parameters and their gradients arrive in 16 bits, but as f32 on the cpu backend; scalars, losses
// and integers never do.
class CustomOp {
 public:
  virtual ~CustomOp();
  // Lower case, as in "cosine_embedding"; of an adjoint "cosine_embedding.dgrad" or ".wgrad".
  virtual std::string_view name() const = 0;
  virtual std::string text() const { return {}; }  // its attributes, for listings
  // The outputs' types. Throws ShapeError with the numbers; the graph adds the model's line. Asked
  // again when the precision has changed the inputs' dtypes: a gradient has its value's dtype.
  virtual Types infer(const Types& in) const = 0;
  virtual Cost cost(const Types& in, const Types& out) const = 0;
  // Records the adjoint ops, which may be custom ones too. Of a loss, adjoint.d_out() is f32 []: 1,
  // or the loss scale of fp16. Throws NoAdjoint unless overridden.
  virtual void grad(Adjoint& adjoint) const;
  // The kernel of `backend` ("ref", "cpu", "cuda") for a node of this op, or null: none is there.
  virtual std::unique_ptr<Kernel> bind(std::string_view backend, const Graph& graph,
                                       const Node& node) const = 0;
  // Whether slots of the step (Role::input) that it takes stay f32 in 16-bit precisions.
  virtual bool wants_f32() const { return false; }
  // The inputs whose buffer output 0 may take over: element i of it depends on no other of theirs.
  // The planner never gives it a buffer that an input not named here reads too, as in {x, x}.
  virtual std::vector<int> in_place_inputs() const { return {}; }
  // The op in this one's place where the model is evaluated or predicts, with the same inputs and
  // outputs; null: this one, which then changes the buffers that it takes (Role::buffer) as in
  // training.
  virtual std::shared_ptr<const CustomOp> for_inference() const { return nullptr; }
};

// Any number of inputs and outputs, in the plain layout on every backend. Recorded by custom() in
// engine/graph/layers.h.
struct Custom {
  static constexpr std::string_view name = "custom";  // its own name is op->name()
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(Role::buffer),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::shared_ptr<const CustomOp> op;
  bool operator==(const Custom&) const = default;
};
Types infer(const Custom& op, const Types& in);
void grad(const Custom& op, Adjoint& adjoint);
Cost cost(const Custom& op, const Types& in, const Types& out);
std::string text(const Custom& op);

}  // namespace warpstep
