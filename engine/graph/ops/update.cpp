#include "engine/graph/ops/update.h"

#include <fmt/format.h>

#include <limits>

#include "engine/core/error.h"

namespace warpstep {

std::string_view name(Optimizer::Kind kind) {
  switch (kind) {
    case Optimizer::Kind::sgd: return "sgd";
    case Optimizer::Kind::adam: return "adam";
    case Optimizer::Kind::adamw: return "adamw";
    case Optimizer::Kind::lars: return "lars";
    case Optimizer::Kind::rmsprop: return "rmsprop";
  }
  return "?";
}

std::string text(const Optimizer& o) {
  std::string s(name(o.kind));
  if (!o.adaptive() && o.momentum != 0)
    s += fmt::format(" momentum {}{}", o.momentum, o.nesterov ? " nesterov" : "");
  if (o.weight_decay != 0)
    s += fmt::format(" weight decay {}{}", o.weight_decay, o.decays_vectors ? "" : " of matrices");
  if (o.moments() > 0 && o.moment_dtype != DType::f32)
    s += fmt::format(", moments in {}", name(o.moment_dtype));
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
// for sgd with momentum, 28 for adam, both in fp32 and with 16-bit gradients and copy; 4 less for
// each moment in bf16. About 12 operations an element for adam and rmsprop.
Cost cost(const Update& op, const Types& in, const Types&) {
  const double count = static_cast<double>(in[0].shape.count());
  auto bytes = static_cast<double>(2 * in[0].bytes());
  for (int m = 0; m < op.optimizer.moments(); ++m)
    bytes += static_cast<double>(2 * in[idx(3 + m)].bytes());
  bytes += static_cast<double>(in[1].bytes() + (op.copy ? in.back().bytes() : 0));
  const bool has_root = op.optimizer.adaptive() || op.optimizer.kind == Optimizer::Kind::rmsprop;
  return {count * (has_root ? 12 : 4), bytes, 1};
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
  double count = 0;
  for (std::size_t i = 1; i < in.size(); ++i) count += static_cast<double>(in[i].shape.count());
  return {2 * count, bytes_of(in), count};
}
std::string text(const CheckGradients& op) {
  return op.clip_norm > 0 ? fmt::format("clip at norm {}", op.clip_norm) : "";
}

namespace {

// state, then two operands of one shape for each parameter.
void require_pairs(std::string_view op, const Types& in) {
  require_inputs(op, in, 3, std::numeric_limits<std::size_t>::max());
  if (in.size() % 2 == 0) fail<ShapeError>("{} takes pairs after the state", op);
  for (std::size_t i = 1; i < in.size(); i += 2)
    if (in[i].shape != in[i + 1].shape)
      fail<ShapeError>("{}: {} and {} differ", op, in[i].text(), in[i + 1].text());
}

// Every operand read, the second of each pair written.
Cost pairs_cost(const Types& in, double flops_per_element) {
  Cost cost{0, bytes_of(in), 1};
  for (std::size_t i = 1; i < in.size(); i += 2) {
    cost.flops += flops_per_element * static_cast<double>(in[i].shape.count());
    cost.bytes += static_cast<double>(in[i + 1].bytes());
  }
  return cost;
}

}  // namespace

Types infer(const Accumulate& op, const Types& in) {
  require_pairs(op.name, in);
  return {};
}
Cost cost(const Accumulate&, const Types& in, const Types&) {
  return pairs_cost(in, 2);
}
std::string text(const Accumulate& op) {
  return fmt::format("{} steps", op.steps);
}

Types infer(const AllReduce& op, const Types& in) {
  require_inputs(op.name, in, 1, std::numeric_limits<std::size_t>::max());
  return {};
}
Cost cost(const AllReduce& op, const Types& in, const Types&) {
  return {0, 2 * bytes_of(in), static_cast<double>(op.ranks)};
}
std::string text(const AllReduce& op) {
  return fmt::format("mean of {} ranks{}", op.ranks, op.to_owners ? ", each its share" : "");
}

Types infer(const AllGather& op, const Types& in) {
  require_inputs(op.name, in, 1, std::numeric_limits<std::size_t>::max());
  return {};
}
Cost cost(const AllGather& op, const Types& in, const Types&) {
  return {0, bytes_of(in), static_cast<double>(op.ranks)};
}
std::string text(const AllGather& op) {
  return fmt::format("shares of {} ranks", op.ranks);
}

Types infer(const LarsScale& op, const Types& in) {
  require_pairs(op.name, in);
  return {};
}
Cost cost(const LarsScale&, const Types& in, const Types&) {
  Cost cost = pairs_cost(in, 7);
  cost.bytes += bytes_of(in);  // once for the norms, once to scale
  return cost;
}
std::string text(const LarsScale& op) {
  return fmt::format("trust {}", op.trust) +
         (op.weight_decay != 0 ? fmt::format(" weight decay {}", op.weight_decay) : "");
}

Types infer(const Average& op, const Types& in) {
  require_pairs(op.name, in);
  return {};
}
Cost cost(const Average&, const Types& in, const Types&) {
  return pairs_cost(in, 3);
}
std::string text(const Average& op) {
  return fmt::format("decay {}", op.decay);
}

Types infer(const Report& op, const Types& in) {
  require_inputs(op.name, in, 3, 4);
  return {};
}
Cost cost(const Report&, const Types& in, const Types&) {
  return {0, bytes_of(in) - static_cast<double>(in.back().bytes()) + sizeof(StepReport), 1};
}

}  // namespace warpstep
