#include "engine/ops/update.h"

#include <fmt/format.h>

#include "engine/core/error.h"

namespace warpstep {

std::string_view name(Optimizer::Kind kind) {
  switch (kind) {
    case Optimizer::Kind::sgd: return "sgd";
    case Optimizer::Kind::adam: return "adam";
    case Optimizer::Kind::adamw: return "adamw";
  }
  return "?";
}

std::string text(const Optimizer& o) {
  std::string s(name(o.kind));
  if (o.kind == Optimizer::Kind::sgd && o.momentum != 0)
    s += fmt::format(" momentum {}{}", o.momentum, o.nesterov ? " nesterov" : "");
  if (o.weight_decay != 0) s += fmt::format(" weight decay {}", o.weight_decay);
  return s;
}

Types infer(const Clock& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {};
}
Cost cost(const Clock&, const Types& in, const Types&) {
  return {0, 2 * bytes_of(in), 1};
}
std::string text(const Clock& op) {
  return text(op.schedule);
}

Types infer(const Update& op, const Types& in) {
  const auto inputs = idx(3 + op.optimizer.moments());
  require_inputs(op.name, in, inputs, inputs);
  if (in[0].shape != in[1].shape)
    fail<ShapeError>("update: parameter {} and gradient {} differ", in[0].text(), in[1].text());
  return {};
}

// Reads parameter, gradient and moments, writes parameter and moments: 20 bytes a parameter for sgd
// with momentum, 28 for adam. About 12 operations an element for adam.
Cost cost(const Update& op, const Types& in, const Types&) {
  const double count = static_cast<double>(in[0].shape.count());
  return {count * (op.optimizer.moments() == 2 ? 12 : 4),
          count * 4 * (3 + 2 * op.optimizer.moments()), 1};
}
std::string text(const Update& op) {
  return text(op.optimizer);
}

Types infer(const UpdateAll&, const Types&) {
  return {};
}
Cost cost(const UpdateAll& op, const Types& in, const Types&) {
  const auto stride = idx(3 + op.optimizer.moments());
  Cost total;
  for (std::size_t i = 0; i < in.size(); i += stride) {
    const Cost one = cost(Update{op.optimizer}, {in[i]}, {});
    total.flops += one.flops;
    total.bytes += one.bytes;
  }
  return total;
}
std::string text(const UpdateAll& op) {
  return text(op.optimizer);
}

}  // namespace warpstep
