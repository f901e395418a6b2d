#include "engine/graph/ops/embed.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

void require_tokens(std::string_view op, const Type& tokens, const Type& order,
                    std::int64_t sequence, std::int64_t positions) {
  if (tokens.dtype != DType::i32 || tokens.shape.rank() != 1)
    fail<ShapeError>("{} takes tokens i32 [N], not {}", op, tokens.text());
  if (order != tokens)
    fail<ShapeError>("{} of tokens {} needs their order, {}, got {}", op, tokens.text(),
                     tokens.text(), order.text());
  if (sequence > positions)
    fail<ShapeError>("{}: sequences of {} are longer than the {} positions", op, sequence,
                     positions);
  if (sequence < 1 || tokens.shape[0] % sequence != 0)
    fail<ShapeError>("{}: {} tokens are not a whole number of sequences of {}", op, tokens.shape[0],
                     sequence);
}

}  // namespace

Types infer(const Embed& op, const Types& in) {
  require_inputs(op.name, in, 4, 4);
  if (in[2].shape.rank() != 2 || in[3].shape.rank() != 2 || in[2].shape[1] != in[3].shape[1])
    fail<ShapeError>("embed needs tables [V,C] and [P,C], got {} and {}", in[2].text(),
                     in[3].text());
  require_tokens(op.name, in[0], in[1], op.sequence, in[3].shape[0]);
  return {{in[2].dtype, {in[0].shape[0], in[2].shape[1]}}};
}

void grad(const Embed& op, Adjoint& adjoint) {
  EmbedGrad d{.vocabulary = adjoint.in(2).type().shape[0],
              .positions = adjoint.in(3).type().shape[0],
              .sequence = op.sequence};
  std::vector<Tensor> in{adjoint.d_out(), adjoint.in(0), adjoint.in(1)};
  d.sum = adjoint.has_own_gradient(2);
  if (d.sum) in.push_back(adjoint.take_gradient(2));
  const std::vector<Tensor> out = adjoint.record(Phase::weight_grad, d, in);
  adjoint.give(2, out[0]);
  adjoint.give(3, out[1]);
}

// Of the tables, the rows of the tokens and of the sequence's positions.
Cost cost(const Embed& op, const Types& in, const Types& out) {
  const Type positions{in[3].dtype, {op.sequence, in[3].shape[1]}};
  return {static_cast<double>(out[0].shape.count()),
          bytes_of({in[0], positions}) + 2 * bytes_of(out), 1};
}

std::string text(const Embed& op) {
  return fmt::format("sequence {}", op.sequence);
}

Types infer(const EmbedGrad& op, const Types& in) {
  const std::size_t inputs = op.sum ? 4 : 3;
  require_inputs(op.name, in, inputs, inputs);
  require_tokens(op.name, in[1], in[2], op.sequence, op.positions);
  if (in[0].shape.rank() != 2 || in[0].shape[0] != in[1].shape[0])
    fail<ShapeError>("embed.wgrad of {} tokens needs their gradients [N,C], got {}", in[1].shape[0],
                     in[0].text());
  const Type table{in[0].dtype, {op.vocabulary, in[0].shape[1]}};
  if (op.sum && in[3] != table)
    fail<ShapeError>("embed.wgrad adds {} to {}", table.text(), in[3].text());
  return {table, {in[0].dtype, {op.positions, in[0].shape[1]}}};
}

// d_x is read for the table and for the positions. Added to a gradient, only the tokens' rows of
// the table are read and written, otherwise the whole table is written.
Cost cost(const EmbedGrad& op, const Types& in, const Types& out) {
  const double rows = bytes_of({in[0]});
  const double table = op.sum ? 2 * std::min(rows, bytes_of({out[0]})) : bytes_of({out[0]});
  return {2 * static_cast<double>(in[0].shape.count()),
          2 * rows + bytes_of({in[1], in[2], out[1]}) + table, static_cast<double>(in[0].shape[0])};
}

std::string text(const EmbedGrad& op) {
  return op.sum ? "+sum" : "";
}

}  // namespace warpstep
