#include "engine/ops/update.h"

#include <fmt/format.h>

#include <limits>

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
  return text(op.schedule) + (op.scaling.enabled ? ", loss scaling" : "");
}

Types infer(const Update& op, const Types& in) {
  require_inputs(op.name, in, op.operands(), op.operands());
  if (in[0].shape != in[1].shape)
    fail<ShapeError>("update: parameter {} and gradient {} differ", in[0].text(), in[1].text());
  return {};
}

// Reads parameter, gradient and moments, writes parameter, moments and copy: 20 bytes a parameter
// for sgd with momentum, 28 for adam, both in fp32 and with 16-bit gradients and copy. About 12
// operations an element for adam.
Cost cost(const Update& op, const Types& in, const Types&) {
  const double count = static_cast<double>(in[0].shape.count());
  double bytes = static_cast<double>(2 * in[0].bytes() * idx(1 + op.optimizer.moments()));
  bytes += static_cast<double>(in[1].bytes() + (op.copy ? in.back().bytes() : 0));
  return {count * (op.optimizer.moments() == 2 ? 12 : 4), bytes, 1};
}
std::string text(const Update& op) {
  return text(op.optimizer) + (op.copy ? " +copy" : "");
}

Types infer(const UpdateAll&, const Types&) {
  return {};
}
Cost cost(const UpdateAll& op, const Types& in, const Types&) {
  const Update update{op.optimizer, op.copy};
  Cost total;
  for (std::size_t i = 0; i < in.size(); i += update.operands()) {
    const auto first = in.begin() + static_cast<std::ptrdiff_t>(i);
    const Cost one =
        cost(update, Types(first, first + static_cast<std::ptrdiff_t>(update.operands())), {});
    total.flops += one.flops;
    total.bytes += one.bytes;
  }
  return total;
}
std::string text(const UpdateAll& op) {
  return text(Update{op.optimizer, op.copy});
}

Types infer(const CheckGradients& op, const Types& in) {
  require_inputs(op.name, in, 2, std::numeric_limits<std::size_t>::max());
  return {};
}
Cost cost(const CheckGradients&, const Types& in, const Types&) {
  return {0, bytes_of(in), 1};
}

Types infer(const Report& op, const Types& in) {
  require_inputs(op.name, in, 4, 4);
  return {};
}
Cost cost(const Report&, const Types& in, const Types&) {
  return {0, bytes_of(in) - static_cast<double>(in[3].bytes()) + sizeof(StepReport), 1};
}

}  // namespace warpstep
