#include "engine/graph/ops/attention.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/step_state.h"

namespace warpstep {
namespace {

void require_state(std::string_view op, const Type& state) {
  if (state != Type{DType::u8, {static_cast<std::int64_t>(sizeof(StepState))}})
    fail<ShapeError>("{} with dropout takes the step's state, not {}", op, state.text());
}

// Of `products` matrix products of T x T x D for each sequence and head; causal ones compute half.
double product_flops(const Attention& op, const Type& qkv, int products) {
  const double rows = static_cast<double>(qkv.shape[0]);
  const double channels = static_cast<double>(qkv.shape[1] / 3);
  const double keys = static_cast<double>(op.sequence + (op.causal ? 1 : 0)) / (op.causal ? 2 : 1);
  return 2 * products * rows * keys * channels;
}

}  // namespace

Types infer(const Attention& op, const Types& in) {
  const std::size_t inputs = op.dropout > 0 ? 2 : 1;
  require_inputs(op.name, in, inputs, inputs);
  const Shape& qkv = in[0].shape;
  if (qkv.rank() != 2) fail<ShapeError>("attention takes rows [N,3C], not {}", in[0].text());
  if (op.heads < 1 || qkv[1] % (3 * op.heads) != 0)
    fail<ShapeError>(
        "attention: rows of {} cannot be split into queries, keys and values of {} heads", qkv[1],
        op.heads);
  if (op.sequence < 1 || qkv[0] % op.sequence != 0)
    fail<ShapeError>("attention: {} rows are not a whole number of sequences of {}", qkv[0],
                     op.sequence);
  if (!(op.dropout >= 0 && op.dropout < 1))
    fail<ShapeError>("attention: dropout must be a share of at least 0 and below 1, not {}",
                     op.dropout);
  if (op.dropout > 0) require_state(op.name, in[1]);
  return {{in[0].dtype, {qkv[0], qkv[1] / 3}},
          {DType::f32, {qkv[0] / op.sequence, op.heads, op.sequence}}};
}

void grad(const Attention& op, Adjoint& adjoint) {
  std::vector<Tensor> in{adjoint.d_out(), adjoint.in(0), adjoint.out(0), adjoint.out(1)};
  if (op.dropout > 0) in.push_back(adjoint.in(1));
  adjoint.give(0, adjoint.record(Phase::data_grad, AttentionGrad{op}, in)[0]);
}

// Two products; the probabilities are never in memory.
Cost cost(const Attention& op, const Types& in, const Types& out) {
  return {product_flops(op, in[0], 2), bytes_of(in) + bytes_of(out),
          static_cast<double>(op.sequence + in[0].shape[1] / 3 / op.heads)};
}

std::string text(const Attention& op) {
  std::string s = fmt::format("{} heads, sequence {}", op.heads, op.sequence);
  if (op.causal) s += " causal";
  if (op.dropout > 0) s += fmt::format(" dropout {}", op.dropout);
  return s;
}

Types infer(const AttentionGrad& op, const Types& in) {
  const std::size_t inputs = op.attention.dropout > 0 ? 5 : 4;
  require_inputs(op.name, in, inputs, inputs);
  Types forward{in[1]};
  if (op.attention.dropout > 0) forward.push_back(in[4]);
  const Types out = infer(op.attention, forward);
  if (in[0] != out[0] || in[2] != out[0] || in[3] != out[1])
    fail<ShapeError>("attention.dgrad of {} needs {}, {} and {}, got {}, {} and {}", in[1].text(),
                     out[0].text(), out[0].text(), out[1].text(), in[0].text(), in[2].text(),
                     in[3].text());
  return {in[1]};
}

// Five products: the scores again, and the gradients of values, probabilities, queries and keys.
Cost cost(const AttentionGrad& op, const Types& in, const Types& out) {
  const Attention& attention = op.attention;
  return {product_flops(attention, in[1], 5), bytes_of(in) + bytes_of(out),
          static_cast<double>(attention.sequence + in[1].shape[1] / 3 / attention.heads)};
}

std::string text(const AttentionGrad& op) {
  return text(op.attention);
}

}  // namespace warpstep
