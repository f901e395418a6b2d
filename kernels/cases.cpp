#include "kernels/cases.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/graph/adjoint.h"

namespace warpstep::cases {
namespace {

// A permutation of [0, count) that moves neighbours far apart.
std::uint64_t scattered(std::uint64_t element, std::uint64_t count, std::uint64_t shift) {
  constexpr std::uint64_t prime = 2654435761;  // not a factor of any count here
  return (element * prime + shift) % count;
}

// Word `i` of the RowPlans of a batch, as an integer. A float is stored as the integer of its bits;
// cases pass values as f32, which has 24 bits, so floats in plans are multiples of 1 / 8.
double plan_word(const Fill& fill, std::uint64_t i, std::uint64_t count, std::uint32_t word) {
  constexpr std::uint64_t words = sizeof(RowPlan) / sizeof(std::int32_t);
  const std::uint64_t row = i / words, rows = count / words;
  const auto choices = static_cast<std::uint32_t>(fill.scale);
  RowPlan plan{.source = below(word, choices),
               .y = static_cast<std::int16_t>(static_cast<int>(below(word, 7)) - 3),
               .x = static_cast<std::int16_t>(static_cast<int>(below(word * 2654435761U, 5)) - 2),
               .mirrored = below(word, 2),
               .gain = static_cast<float>(4 + below(word, 9)) / 8,
               .offset = static_cast<float>(below(word, 9)) * 8 - 32,
               .key = {11, 12},
               .counter = {3, static_cast<std::uint32_t>(row)},
               .pair = below(word, static_cast<std::uint32_t>(rows)),
               .weight = row % 3 == 1 ? 1 : static_cast<float>(below(word, 8)) / 8,
               .pair_label = static_cast<std::int32_t>(below(word, choices))};
  if (row % 3 == 2) {
    plan.top = static_cast<std::int16_t>(below(word, 4));
    plan.left = static_cast<std::int16_t>(below(word, 9));
    plan.bottom = static_cast<std::int16_t>(plan.top + 5);
    plan.right = static_cast<std::int16_t>(plan.left + 20);
  }
  std::array<std::int32_t, words> all{};
  std::memcpy(all.data(), &plan, sizeof plan);
  return all[i % words];
}

double element(const Fill& fill, std::uint64_t i, std::uint64_t count, std::uint32_t word) {
  const double u = static_cast<double>(uniform(word));
  switch (fill.kind) {
    case Fill::Kind::centered: return fill.scale * (2 * u - 1);
    case Fill::Kind::positive: return fill.scale * u;
    case Fill::Kind::distinct: {
      const auto rank = static_cast<double>(scattered(i, count, count / 3));
      return fill.scale * (2 * rank + 1 - static_cast<double>(count / 2 * 2)) /
             static_cast<double>(count);
    }
    case Fill::Kind::coarse: return fill.scale * (static_cast<double>(below(word, 3)) - 1);
    case Fill::Kind::constant: return fill.scale;
    case Fill::Kind::rising: return fill.scale * static_cast<double>(i);
    case Fill::Kind::extreme: return below(word, 2) == 0 ? -fill.scale : fill.scale;
    case Fill::Kind::pixels: return below(word, 256);
    case Fill::Kind::labels: return below(word, static_cast<std::uint32_t>(fill.scale));
    case Fill::Kind::padded:
      if (i % 3 == 2 || i + 1 == count) return -1;
      return below(word, static_cast<std::uint32_t>(fill.scale));
    case Fill::Kind::none: return -1;
    case Fill::Kind::around: return fill.scale + std::numbers::sqrt3 * (2 * u - 1);
    case Fill::Kind::plans: return plan_word(fill, i, count, word);
    case Fill::Kind::ends: return below(word, 2) == 0 ? 0 : fill.scale - 1;
    case Fill::Kind::permuted: return static_cast<double>(scattered(i, count, count / 3));
    case Fill::Kind::order: break;  // not element by element: order_of()
  }
  return 0;
}

// Half the width of a uniform distribution similar to the parameters' initial one; constants would
// hide mistakes.
double spread(const Initial& initial) {
  switch (initial.kind) {
    case Initial::Kind::uniform: return initial.value;
    case Initial::Kind::normal: return initial.value * 1.7;
    case Initial::Kind::constant: return 1;
  }
  return 1;
}

std::vector<float> order_of(const std::vector<float>& keys) {
  std::vector<float> order(keys.size());
  std::iota(order.begin(), order.end(), 0.0F);  // exact: far below 2^24
  std::stable_sort(order.begin(), order.end(), [&](float a, float b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  return order;
}

Fill fill_of(const Case& c, int id) {
  if (const auto found = c.fills.find(id); found != c.fills.end()) return found->second;
  const Value& value = c.graph.value(id);
  if (value.role == Role::parameter)
    return {Fill::Kind::centered, spread(c.graph.parameters[idx(value.owner)].initial)};
  return {};
}

}  // namespace

Case& List::add(const std::string& label, const std::function<void(Case&)>& build) {
  Case& added = cases_.emplace_back();
  added.name = folder_ + "/" + label;
  build(added);
  return added;
}

Tensor input(Case& c, const std::string& name, Type type, Fill fill) {
  const Tensor tensor = c.graph.input(name, type);
  c.fills[tensor.id] = fill;
  return tensor;
}

Tensor record(Case& c, AnyOp op, const std::vector<Tensor>& in) {
  return c.graph.record(Phase::forward, std::move(op), in, "", Where::current())[0];
}

void parameter(Case& c, const std::string& name, Shape shape) {
  Graph& graph = c.graph;
  std::vector<int> permutation;
  for (int axis = 0; axis < shape.rank(); ++axis) permutation.push_back(axis);
  const int index = static_cast<int>(graph.parameters.size());
  const int value = graph.add_value({DType::f32, shape}, Role::parameter, name);
  const int gradient = graph.add_value({DType::f32, shape}, Role::gradient, "d_" + name);
  graph.value(value).owner = graph.value(gradient).owner = index;
  graph.parameters.push_back({.name = name,
                              .value = value,
                              .gradient = gradient,
                              .moments = {},
                              .view = shape,
                              .permutation = std::move(permutation),
                              .initial = {Initial::Kind::uniform, 0.5}});
}

void fill_moments(Case& c, const Optimizer& optimizer) {
  const int squares = optimizer.kind == Optimizer::Kind::rmsprop ? 0 : 1;
  for (const Parameter& parameter : c.graph.parameters)
    for (const int moment : parameter.moments)
      c.fills[moment] = c.graph.value(moment).moment == squares ? Fill{Fill::Kind::positive, 0.01}
                                                                : Fill{Fill::Kind::centered, 0.1};
}

bool has_adjoint(const Case& c) {
  const auto all_of = [&](auto holds) {
    return std::all_of(c.graph.nodes.begin(), c.graph.nodes.end(), holds);
  };
  if (!all_of([](const Node& node) {
        return std::visit(
            []<class Op>(const Op& op) {
              if constexpr (std::is_same_v<Op, SoftmaxXent>)
                return op.gradient;
              else if constexpr (std::is_same_v<Op, BatchNorm>)
                return op.training;
              else
                return Op::traits.kind == OpKind::model || Op::traits.kind == OpKind::loss ||
                       Op::traits.kind == OpKind::view;
            },
            node.op);
      }))
    return false;
  if (all_of([](const Node& node) { return !std::holds_alternative<Custom>(node.op); }))
    return true;
  try {
    with_adjoint(c);
    return true;
  } catch (const NoAdjoint&) {
    return false;
  }
}

Case with_adjoint(Case c) {
  Graph& graph = c.graph;
  const std::size_t forward_nodes = graph.nodes.size();
  const Node last = graph.nodes.back();
  std::vector<int> gradients(graph.values.size(), -1);
  std::vector<bool> wanted(graph.values.size());
  for (std::size_t id = 0; id < wanted.size(); ++id)
    wanted[id] = is_float(graph.values[id].type.dtype);
  if (kind(last.op) != OpKind::loss) {
    c.d_out = input(c, "d_out", graph.value(last.out[0]).type).id;
    gradients[idx(last.out[0])] = c.d_out;
  }
  for (std::size_t n = forward_nodes; n-- > 0;) {
    const Node node = graph.nodes[n];
    Adjoint adjoint(graph, node, gradients, wanted);
    grad(node.op, adjoint);
  }
  for (std::size_t id = 0; id < gradients.size(); ++id)
    if (gradients[id] >= 0) c.gradients[static_cast<int>(id)] = gradients[id];
  for (Parameter& parameter : graph.parameters) {
    parameter.gradient = gradients[idx(parameter.value)];
    Value& gradient = graph.value(parameter.gradient);
    gradient.role = Role::gradient;
    gradient.owner = graph.value(parameter.value).owner;
  }
  // Only graphs that train, which have a state, keep gradients in the store.
  graph.step_state();
  return c;
}

std::vector<float> values(const Case& c, int id, std::uint64_t seed) {
  const Fill fill = fill_of(c, id);
  if (fill.kind == Fill::Kind::order) return order_of(values(c, fill.of, seed));
  const auto count = static_cast<std::uint64_t>(c.graph.value(id).type.shape.count());
  std::vector<float> result(count);
  auto words = draw(seed, Purpose::synthetic, static_cast<std::uint32_t>(id), 0);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % 4 == 0) words = draw(seed, Purpose::synthetic, static_cast<std::uint32_t>(id), i / 4);
    result[i] = static_cast<float>(element(fill, i, count, words[i % 4]));
  }
  if (fill.nan)
    for (std::uint64_t i = count / 2 % 41; i < count; i += 41)
      result[i] = std::numeric_limits<float>::quiet_NaN();
  return result;
}

}  // namespace warpstep::cases
