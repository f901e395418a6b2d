// What every op states about itself. An op is a plain value: attributes, traits, a shape rule
// (infer), its adjoint (grad) if it has one, its cost, and a line of text. It knows no backend and
// holds no pointer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/types.h"

namespace warpstep {

class Adjoint;

using Types = std::vector<Type>;

// What a value is for; decides where it lives.
enum class Role : std::uint8_t {
  input,     // a slot of the loader: images, labels
  resident,  // likewise, but in the device's memory already: a data set that was uploaded once, or
             // a buffer that another thread fills
  activation,  // made and used inside a step, planned into the arena
  statistic,   // likewise, always f32 or i32: losses, counts
  index,       // likewise, integers: pooling positions
  mask,        // likewise, bits that only the backend that wrote them can read
  parameter,   // these persist from step to step, see engine/run/store.h
  buffer,      // f32 that steps may change but no gradient does: running statistics, class weights
  gradient,
  moment,
  copy,         // of a parameter, in the dtype that the step computes in; made by the optimiser
  accumulator,  // a gradient's sum over steps, f32
  average,      // of a parameter over the run, f32
  state,        // StepState
  report,       // the ring of StepReports, in the host's memory
  sums,         // the ring of BlockSums, likewise
};

// What a call does, and how deep its longest sum is (for the tolerance of its result).
struct Cost {
  double flops = 0;  // a multiply-add counts as two
  // Every input read once and every output written once; but batch norms in training read
  // images twice, embeddings only the rows that they look up.
  double bytes = 0;
  double depth = 1;  // terms added into one element of the result
};

double bytes_of(const Types& types);

// How many rows of the last axis x has: N*H*W of images [N,H,W,C].
double row_count(const Shape& x);

// What an op adds to its cost that also sums the columns of `x`: the sum over all but the last
// axis.
void add_column_sums(Cost& cost, const Shape& x);

// Throws ShapeError unless least <= in.size() <= most; the graph adds scope and model line.
void require_inputs(std::string_view op, const Types& in, std::size_t least, std::size_t most);
// Throws ShapeError where x and its weight differ in dtype: kernels read both as one.
void require_same_dtype(std::string_view op, const Type& x, const Type& weight);

// What the passes, the planner and the backends ask of any op. Every op states it as `static
// constexpr OpTraits traits`; no field has a default, so that an op that forgets one does not
// compile. Two fields of an op have a meaning of their own: `dtype` is set to the dtype that the
// step stores values in, and `scaled` to true where the op is to multiply by the loss scale.
enum class OpKind : std::uint8_t {
  model,     // of the forward half, as recorded or fused, with an adjoint
  constant,  // of the forward half, and nothing is learnt through it: no adjoint
  loss,      // its adjoint gives the gradient of the mean loss, whatever arrives
  derived,   // made later: by differentiate(), or by a fusion after it
  update,    // changes parameters or their averages, by their gradients
  state,     // of the step itself: the clock, gradients summed over steps, the report
  measure,   // reads the step for the host and changes nothing: only some steps run it
  move,      // the same values in other memory or another layout, inserted by a backend
  view,      // its input under another shape: no call, one buffer; its adjoint is a view
};

enum class F32 : std::uint8_t {  // what stays f32 in 16-bit precisions
  none,
  inputs,      // what the op reads, where it is a slot of the step (Role::input)
  parameters,  // it reads the parameters themselves, not their copies
};

struct RoleSet {
  std::uint32_t bits;
  constexpr bool contains(Role role) const { return ((bits >> static_cast<int>(role)) & 1) != 0; }
};
template <class... Roles>
consteval RoleSet roles(Roles... role) {
  return {(0U | ... | (1U << static_cast<int>(role)))};
}

// Some of an op's first eight inputs.
struct InputSet {
  static constexpr int most = 8;
  std::uint8_t bits;
  constexpr bool contains(int i) const { return ((bits >> i) & 1) != 0; }
};
template <class... Index>
consteval InputSet inputs(Index... index) {
  if (((index < 0 || index >= InputSet::most) || ...)) throw "an input beyond InputSet::most";
  return {static_cast<std::uint8_t>((0 | ... | (1 << index)))};
}

// A field that must be given.
template <class T>
struct Stated {
  constexpr Stated(T given) : value(given) {}
  constexpr operator T() const { return value; }
  T value;
};

inline constexpr int own_layout = -1;  // backends place the op by its own rules

struct OpTraits {
  Stated<OpKind> kind;
  // Whose buffer output 0 may take over: element i needs element i. An op whose in_place_output()
  // says so does that with another output.
  Stated<InputSet> in_place;
  // The roles of the inputs that a call may change; others stay as they are.
  Stated<RoleSet> changes;
  Stated<F32> f32;
  Stated<int> layout_of;  // the input in whose layout all operands of its shape are stored
};

// The text of ops without attributes.
template <class Op>
requires std::is_empty_v<Op> std::string text(const Op&) {
  return {};
}
// An op with attributes prints them; without this, a forgotten text() would convert its op to AnyOp
// and call itself.
template <class Op>
requires(!std::is_empty_v<Op>) std::string text(const Op&)
= delete;

}  // namespace warpstep
