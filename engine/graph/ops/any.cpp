#include "engine/graph/ops/any.h"

namespace warpstep {

AnyOp::AnyOp(const AnyOp& op) = default;
AnyOp::AnyOp(AnyOp&& op) noexcept = default;
AnyOp& AnyOp::operator=(const AnyOp& op) = default;
AnyOp& AnyOp::operator=(AnyOp&& op) noexcept = default;
AnyOp::~AnyOp() = default;
bool AnyOp::operator==(const AnyOp& op) const {
  return static_cast<const OpVariant&>(*this) == static_cast<const OpVariant&>(op);
}

namespace {

template <class Op>
constexpr bool has_adjoint = Op::traits.kind == OpKind::model || Op::traits.kind == OpKind::loss ||
                             Op::traits.kind == OpKind::view;

const CustomOp* custom(const AnyOp& op) {
  const auto* found = std::get_if<Custom>(&op);
  return found ? found->op.get() : nullptr;
}

OpTraits traits(const AnyOp& op) {
  return std::visit([](const auto& o) { return o.traits; }, op);
}

}  // namespace

std::string_view name(const AnyOp& op) {
  if (const CustomOp* own = custom(op)) return own->name();
  return std::visit([](const auto& o) { return std::string_view(o.name); }, op);
}

std::string text(const AnyOp& op) {
  return std::visit([](const auto& o) { return text(o); }, op);
}

Types infer(const AnyOp& op, const Types& in) {
  return std::visit([&](const auto& o) { return infer(o, in); }, op);
}

void grad(const AnyOp& op, Adjoint& adjoint) {
  std::visit(
      [&]<class Op>(const Op& o) {
        if constexpr (has_adjoint<Op>)
          grad(o, adjoint);
        else
          fail<Error>("{} has no adjoint", o.name);
      },
      op);
}

Cost cost(const AnyOp& op, const Types& in, const Types& out) {
  return std::visit([&](const auto& o) { return cost(o, in, out); }, op);
}

OpKind kind(const AnyOp& op) {
  return traits(op).kind;
}

int layout_of(const AnyOp& op) {
  return traits(op).layout_of;
}

bool has_f32_inputs(const AnyOp& op) {
  if (const CustomOp* own = custom(op)) return own->wants_f32();
  // A network's own output has the step's dtype.
  if (const auto* nll = std::get_if<Nll>(&op); nll && nll->raw) return false;
  return traits(op).f32 == F32::inputs;
}

bool reads_f32_parameters(const AnyOp& op) {
  return traits(op).f32 == F32::parameters;
}

std::vector<int> in_place_inputs(const AnyOp& op) {
  if (const CustomOp* own = custom(op)) return own->in_place_inputs();
  const InputSet set = traits(op).in_place;
  std::vector<int> found;
  for (int i = 0; i < InputSet::most; ++i)
    if (set.contains(i)) found.push_back(i);
  return found;
}

int in_place_output(const AnyOp& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.in_place_output(); })
          return o.in_place_output();
        else
          return 0;
      },
      op);
}

bool changes(const AnyOp& op, Role role) {
  const RoleSet set = traits(op).changes;
  return set.contains(role);
}

void set_storage_dtype(AnyOp& op, DType dtype) {
  // The adjoint of a loss of log-probabilities is f32, as they are.
  if (const auto* nll = std::get_if<NllGrad>(&op); nll && !nll->raw) return;
  std::visit(
      [&](auto& o) {
        if constexpr (requires { o.dtype; }) o.dtype = dtype;
      },
      op);
}

bool set_scaled(AnyOp& op) {
  // A cross-entropy of an evaluation gives no gradient.
  if (const auto* xent = std::get_if<SoftmaxXent>(&op); xent && !xent->gradient) return false;
  std::visit(
      [](auto& o) {
        if constexpr (requires { o.scaled; }) o.scaled = true;
      },
      op);
  return is_scaled(op);
}

bool is_scaled(const AnyOp& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.scaled; })
          return o.scaled;
        else
          return false;
      },
      op);
}

}  // namespace warpstep
