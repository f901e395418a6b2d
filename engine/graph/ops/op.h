// What every op states about itself. An op is a plain value: attributes, a shape rule (infer), its
// adjoint (grad), its cost, and a line of text. It knows no backend and holds no pointer.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/types.h"

namespace warpstep {

class Adjoint;

using Types = std::vector<Type>;

// What a call must do at the least, and how deep its longest sum is (for the tolerance of its
// result).
struct Cost {
  double flops = 0;  // a multiply-add counts as two
  double bytes = 0;  // every input read once, every output written once
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

// The answers of ops that say nothing of their own: no attributes, no adjoint (ops that are
// adjoints themselves).
template <class Op>
requires std::is_empty_v<Op> std::string text(const Op&) {
  return {};
}
// An op with attributes tells them; without this, a forgotten text() would convert its op to AnyOp
// and call itself.
template <class Op>
requires(!std::is_empty_v<Op>) std::string text(const Op&)
= delete;

template <class Op>
void grad(const Op& op, Adjoint&) {
  fail<Error>("{} has no adjoint", op.name);
}

}  // namespace warpstep
