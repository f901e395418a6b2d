#include "engine/graph/ops/norm.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

void require_channels(std::string_view op, const Type& x, const Types& in, std::size_t first,
                      std::size_t last) {
  if (x.shape.rank() != 4) fail<ShapeError>("{} takes images [N,H,W,C], not {}", op, x.text());
  for (std::size_t i = first; i <= last; ++i)
    if (in[i] != Type{DType::f32, {x.shape[3]}})
      fail<ShapeError>("{} of {} needs f32 {} as operand {}, got {}", op, x.text(), x.shape[3], i,
                       in[i].text());
}

}  // namespace

Types infer(const BatchNorm& op, const Types& in) {
  const std::size_t inputs = op.add ? 6 : 5;
  require_inputs(op.name, in, inputs, inputs);
  require_channels(op.name, in[0], in, 1, 4);
  if (!std::isfinite(op.epsilon) || op.epsilon < 0)
    fail<ShapeError>("batch_norm: epsilon is {}; must be a finite number from 0", op.epsilon);
  if (!(op.momentum >= 0 && op.momentum <= 1))
    fail<ShapeError>("batch_norm: momentum is a share from 0 to 1, not {}", op.momentum);
  if (op.add && in[5] != in[0])
    fail<ShapeError>("batch_norm adds a shortcut {} to {}", in[5].text(), in[0].text());
  if (op.training && in[0].shape.count() * op.ranks == in[0].shape[3])
    fail<ShapeError>(
        "batch_norm of {}: one value per channel has no variance; train with a larger --batch or "
        "larger images",
        in[0].text());
  Types out{in[0]};
  if (op.training) out.insert(out.end(), 2, {DType::f32, {in[0].shape[3]}});
  return out;
}

void grad(const BatchNorm& op, Adjoint& adjoint) {
  if (!op.training) fail<Error>("batch_norm with running statistics has no adjoint");
  const BatchNormGrad d{op};
  std::vector<Tensor> in{adjoint.d_out(), adjoint.in(0), adjoint.in(1), adjoint.out(1),
                         adjoint.out(2)};
  if (op.relu) in.push_back(adjoint.out());
  const std::vector<Tensor> out = adjoint.record(Phase::data_grad, d, in);
  if (adjoint.wants(0)) adjoint.give(0, out[0]);
  adjoint.give(1, out[1]);
  adjoint.give(2, out[2]);
  if (op.add && adjoint.wants(5)) adjoint.give(5, op.relu ? out[3] : adjoint.d_out());
}

// In training x is read twice, for its statistics and for y, as no kernel can know them before.
Cost cost(const BatchNorm& op, const Types& in, const Types& out) {
  const double count = static_cast<double>(in[0].shape.count());
  const double twice = op.training ? static_cast<double>(in[0].bytes()) : 0;
  return {count * (op.training ? 5 : 2), bytes_of(in) + bytes_of(out) + twice,
          op.training ? row_count(in[0].shape) : 1};
}

std::string text(const BatchNorm& op) {
  std::string s = op.training ? "" : "running statistics";
  if (op.training && op.ranks > 1) s = fmt::format("over {} ranks", op.ranks);
  for (const auto& [set, word] : {std::pair{op.add, "+add"}, std::pair{op.relu, "+relu"}})
    if (set) s += fmt::format("{}{}", s.empty() ? "" : " ", word);
  return s;
}

Types infer(const BatchNormGrad& op, const Types& in) {
  const std::size_t shortcut = op.shortcut_operand();
  const std::size_t inputs = shortcut + (op.shortcut_norm ? 4 : 0);
  require_inputs(op.name, in, inputs, inputs);
  require_channels(op.name, in[0], in, 2, 4);
  if (op.shortcut_norm) require_channels(op.name, in[0], in, shortcut + 1, shortcut + 3);
  const auto require_same = [&](std::size_t i) {
    if (in[i].shape != in[0].shape)
      fail<ShapeError>("batch_norm.dgrad: operands differ: {} and {}", in[0].shape.text(),
                       in[i].shape.text());
  };
  require_same(1);
  for (std::size_t i = 5; i < std::min(inputs, shortcut + 1); ++i) require_same(i);
  const Type channels{in[0].dtype, {in[0].shape[3]}};
  Types out{in[0], channels, channels};
  if (op.gives_shortcut()) out.push_back(in[0]);
  if (op.shortcut_norm) out.insert(out.end(), 2, channels);
  return out;
}

// Two passes: the sums of g and g h, then d_x. The second reads g where the first has written it,
// else what makes it up once more. With a norm before the shortcut, too, it reads that one's x and
// writes its gradient in the place of g.
Cost cost(const BatchNormGrad& op, const Types& in, const Types& out) {
  const double image = static_cast<double>(in[0].bytes());
  const double again = op.shortcut_norm      ? 4
                       : op.gives_shortcut() ? 2
                                             : static_cast<double>(in.size()) - 3;
  return {(op.shortcut_norm ? 18 : 10) * static_cast<double>(in[0].shape.count()),
          bytes_of(in) + bytes_of(out) + again * image, row_count(in[0].shape)};
}

std::string text(const BatchNormGrad& op) {
  std::string s = text(op.norm);
  if (op.sum) s += fmt::format("{}+sum", s.empty() ? "" : " ");
  if (op.shortcut_norm) s += " +norm";
  return s;
}

}  // namespace warpstep
