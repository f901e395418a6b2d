#include "engine/graph/ops/decode.h"

#include "engine/core/error.h"

namespace warpstep {
namespace {

void require_position(std::string_view op, const Type& position) {
  if (position != Type{DType::i32, {1}})
    fail<ShapeError>("{} takes a position i32 [1], not {}", op, position.text());
}

void require_steps(std::string_view op, std::int64_t rows, std::int64_t sequence,
                   std::int64_t positions) {
  if (sequence < 1 || rows % sequence != 0)
    fail<ShapeError>("{}: {} rows are not a whole number of sequences of {}", op, rows, sequence);
  if (sequence > positions)
    fail<ShapeError>("{}: {} tokens at once are more than the {} positions", op, sequence,
                     positions);
}

}  // namespace

Types infer(const EmbedAt& op, const Types& in) {
  require_inputs(op.name, in, 4, 4);
  if (in[0].dtype != DType::i32 || in[0].shape.rank() != 1)
    fail<ShapeError>("{} takes tokens i32 [N], not {}", op.name, in[0].text());
  require_position(op.name, in[1]);
  if (in[2].shape.rank() != 2 || in[3].shape.rank() != 2 || in[2].shape[1] != in[3].shape[1])
    fail<ShapeError>("{} needs tables [V,C] and [P,C], got {} and {}", op.name, in[2].text(),
                     in[3].text());
  require_steps(op.name, in[0].shape[0], op.sequence, in[3].shape[0]);
  return {{in[2].dtype, {in[0].shape[0], in[2].shape[1]}}};
}

// Of the tables, the rows of the tokens and of T positions.
Cost cost(const EmbedAt& op, const Types& in, const Types& out) {
  const Type positions{in[3].dtype, {op.sequence, in[3].shape[1]}};
  return {static_cast<double>(out[0].shape.count()),
          bytes_of({in[0], in[1], positions}) + 2 * bytes_of(out), 1};
}

std::string text(const EmbedAt& op) {
  return fmt::format("sequence {}", op.sequence);
}

Types infer(const CachedAttention& op, const Types& in) {
  require_inputs(op.name, in, 3, 3);
  const Shape &qkv = in[0].shape, &cache = in[1].shape;
  if (qkv.rank() != 2) fail<ShapeError>("{} takes rows [N,3C], not {}", op.name, in[0].text());
  if (op.heads < 1 || qkv[1] % (3 * op.heads) != 0)
    fail<ShapeError>("{}: rows of {} cannot be split into queries, keys and values of {} heads",
                     op.name, qkv[1], op.heads);
  require_position(op.name, in[2]);
  const std::int64_t positions = cache.rank() == 3 ? cache[1] : 0;
  require_steps(op.name, qkv[0], op.sequence, positions);
  const Type wanted{DType::f32, {qkv[0] / op.sequence, positions, qkv[1] / 3 * 2}};
  if (in[1] != wanted)
    fail<ShapeError>("{} of {} needs a cache {}, got {}", op.name, in[0].text(), wanted.text(),
                     in[1].text());
  return {{in[0].dtype, {qkv[0], qkv[1] / 3}}};
}

// Two products, at the last positions: there the whole cache is read.
Cost cost(const CachedAttention& op, const Types& in, const Types& out) {
  const Type added{DType::f32, {in[0].shape[0], in[1].shape[2]}};
  const double positions = static_cast<double>(in[1].shape[1]);
  return {4 * positions * static_cast<double>(out[0].shape.count()),
          bytes_of(in) + bytes_of({added}) + bytes_of(out),
          positions + static_cast<double>(out[0].shape[1] / op.heads)};
}

std::string text(const CachedAttention& op) {
  return fmt::format("{} heads, sequence {}", op.heads, op.sequence);
}

}  // namespace warpstep
