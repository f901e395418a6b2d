// An op of a user's own, defined outside of Warpstep: see docs/custom-op.md.
#pragma once

#include <memory>

#include "engine/ops/op.h"

namespace warpstep {

class Graph;
class Kernel;
struct Node;

// What every op of the engine states about itself, as virtual functions. Objects are immutable and
// shared between graphs; attributes are their members.
class CustomOp {
 public:
  virtual ~CustomOp();
  virtual std::string_view name() const = 0;       // lower case, as in "cosine_embedding"
  virtual std::string text() const { return {}; }  // its attributes, for listings
  virtual Types infer(const Types& in) const = 0;  // throws ShapeError with the numbers
  virtual Cost cost(const Types& in, const Types& out) const = 0;
  // Records the adjoint ops, which may be custom ones too. Throws Error unless overridden.
  virtual void grad(Adjoint& adjoint) const;
  // The kernel of `backend` ("ref", "cpu", "cuda") for a node of this op, or null: none is there.
  virtual std::unique_ptr<Kernel> bind(std::string_view backend, const Graph& graph,
                                       const Node& node) const = 0;
  // Whether inputs of the step that it takes stay f32 in 16-bit precisions.
  virtual bool wants_f32() const { return false; }
  // The inputs whose buffer output 0 may take over.
  virtual std::vector<int> in_place_inputs() const { return {}; }
};

// Any number of inputs and outputs, in the plain layout on every backend.
struct Custom {
  static constexpr std::string_view name = "custom";  // its own name is op->name()
  std::shared_ptr<const CustomOp> op;
  bool operator==(const Custom&) const = default;
};
Types infer(const Custom& op, const Types& in);
void grad(const Custom& op, Adjoint& adjoint);
Cost cost(const Custom& op, const Types& in, const Types& out);
std::string text(const Custom& op);

}  // namespace warpstep
