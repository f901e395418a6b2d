// The end and the beginning of a step in double.
#include <algorithm>
#include <cmath>

#include "engine/run/store.h"
#include "kernels/ref/ref.h"
#include "kernels/update/gradients.h"

namespace warpstep::ref {
namespace {

void sgd(const Optimizer& o, double rate, double& p, double g, double* momentum) {
  g += o.weight_decay * p;
  if (momentum) {
    *momentum = o.momentum * *momentum + g;
    g = o.nesterov ? g + o.momentum * *momentum : *momentum;
  }
  p -= rate * g;
}

void adam(const Optimizer& o, const StepState& state, double& p, double g, double& m, double& v) {
  const double rate = static_cast<double>(state.learning_rate), decay = o.weight_decay;
  if (o.kind == Optimizer::Kind::adamw)
    p *= 1 - rate * decay;
  else
    g += decay * p;
  m += (1 - o.beta1) * (g - m);
  v = o.beta2 * v + (1 - o.beta2) * g * g;
  const double root = std::sqrt(v) / std::sqrt(static_cast<double>(state.bias_correction2));
  p -= rate / static_cast<double>(state.bias_correction1) * m / (root + o.epsilon);
}

// `buffer` is null without momentum.
void rmsprop(const Optimizer& o, double rate, double& p, double g, double& square, double* buffer) {
  g += o.weight_decay * p;
  square = o.alpha * square + (1 - o.alpha) * g * g;
  double change = g / (std::sqrt(square) + o.epsilon);
  if (buffer) change = *buffer = o.momentum * *buffer + change;
  p -= rate * change;
}

// `first` and `second` are null where the optimiser has no such moment.
void apply(const Optimizer& o, const StepState& state, double& p, double stored, double* first,
           double* second) {
  const double g = stored * static_cast<double>(state.gradient_factor);
  if (o.adaptive())
    adam(o, state, p, g, *first, *second);
  else if (o.kind == Optimizer::Kind::rmsprop)
    rmsprop(o, static_cast<double>(state.learning_rate), p, g, *first, second);
  else
    sgd(o, static_cast<double>(state.learning_rate), p, g, first);
}

// Rounds a moment of element `place` of the sections, see Optimizer::moment_dtype.
void round_moment(const StepState& state, std::int64_t place, int moment, double& value) {
  const std::uint32_t word =
      draw(state.seed, Purpose::moments, static_cast<std::uint32_t>(state.update_index),
           idx(place / 4))[idx(place % 4)];
  value = static_cast<double>(
      widened(narrowed_at_random(static_cast<float>(value), moment_bits(word, moment))));
}

// `begin`: the first element's place in the sections.
void update(const Update& op, const Buffers& b, std::int64_t begin, std::int64_t count,
            DType copied) {
  const Optimizer& o = op.optimizer;
  const StepState state = *as<StepState>(b.in[2]);
  if (!updates(state)) return;
  double* first = o.moments() > 0 ? as<double>(b.in[3]) : nullptr;
  double* second = o.moments() > 1 ? as<double>(b.in[4]) : nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    double& p = as<double>(b.in[0])[i];
    apply(o, state, p, as<double>(b.in[1])[i], first ? first + i : nullptr,
          second ? second + i : nullptr);
    if (o.moment_dtype == DType::bf16) {
      if (first) round_moment(state, begin + i, 0, first[i]);
      if (second) round_moment(state, begin + i, 1, second[i]);
    }
    if (op.copy) as<double>(b.in[op.operands() - 1])[i] = rounded(p, copied);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return host_kernel("clock", [op](const Buffers& b) {
    tick(*as<StepState>(b.in[0]), op.schedule, op.beta1, op.beta2, op.scaling, op.accumulate,
         op.replica);
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  const DType copied = operands.in(static_cast<int>(op.operands()) - 1).type.dtype;
  const SectionRun run =
      update_run(operands.graph, operands.node, operands.in_shape(0).count(), sizeof(double));
  return host_kernel("loops", [op, copied, run](const Buffers& b) {
    update(op, b, run.begin, run.elements, copied);
  });
}

// The sections' padding between parameters is zero and stays zero: its gradient and moments are
// zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  const SectionRun run =
      update_run(operands.graph, operands.node,
                 section_elements(operands.graph, operands.node, sizeof(double)), sizeof(double));
  const Update each{op.optimizer, op.copy};
  const DType copied = operands.in(static_cast<int>(each.operands()) - 1).type.dtype;
  return host_kernel("loops", [each, copied, run](const Buffers& b) {
    update(each, b, run.begin, run.elements, copied);
  });
}

std::unique_ptr<Kernel> bind(const Report&, const Operands&) {
  return host_kernel("report", [](const Buffers& b) {
    const auto& state = *as<StepState>(b.in[b.in.size() - 2]);
    const std::int32_t correct = b.in.size() == 4 ? *as<std::int32_t>(b.in[1]) : 0;
    as<StepReport>(b.in.back())[state.step % report_ring] =
        report_of(static_cast<float>(*as<double>(b.in[0])), correct, state);
  });
}

// The passes around the update: norm, accumulation, LARS, the average of the weights.

namespace {

double squares(const double* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

std::vector<std::int64_t> counts_of(const Operands& operands) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < operands.node.in.size(); ++i)
    counts.push_back(operands.in_shape(static_cast<int>(i)).count());
  return counts;
}

}  // namespace

std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    double sum = 0;
    bool finite = true;
    for (std::size_t p = 1; p < b.in.size(); ++p) {
      const double* g = as<double>(b.in[p]);
      for (std::int64_t i = 0; i < counts[p]; ++i) finite = finite && std::isfinite(g[i]);
      sum += squares(g, counts[p]);
    }
    settle_norm(*as<StepState>(b.in[0]), sum, finite, op.clip_norm);
  });
}

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    const bool first = as<StepState>(b.in[0])->micro_step == 0;
    for (std::size_t p = 1; p < b.in.size(); p += 2)
      for (std::int64_t i = 0; i < counts[p]; ++i) {
        double& sum = as<double>(b.in[p + 1])[i];
        sum = (first ? 0 : sum) + as<double>(b.in[p])[i] / static_cast<double>(op.steps);
      }
  });
}

// The reference computes the means of a world of one rank: there is nothing to do.
std::unique_ptr<Kernel> bind(const AllReduce& op, const Operands&) {
  if (op.ranks > 1)
    fail<DeviceError>("the ref backend trains in one process; use --device cpu for {} ranks",
                      op.ranks);
  return host_kernel("nothing", [](const Buffers&) {});
}

std::unique_ptr<Kernel> bind(const AllGather& op, const Operands& operands) {
  return bind(AllReduce{op.ranks}, operands);
}

std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands& operands) {
  std::vector<DType> stored;
  for (const int id : operands.node.in) stored.push_back(operands.graph.value(id).type.dtype);
  return host_kernel(
      "loops", [op, stored, counts = counts_of(operands),
                scaled = lars_inputs(operands.graph, operands.node)](const Buffers& b) {
        auto& state = *as<StepState>(b.in[0]);
        if (state.update == 0) return;
        bool finite = true;
        for (const std::size_t p : scaled) {
          const double* w = as<double>(b.in[p]);
          double* g = as<double>(b.in[p + 1]);
          const LarsFactor f = lars_factor(op, state, squares(w, counts[p]), squares(g, counts[p]));
          for (std::int64_t i = 0; f.factor != 0 && i < counts[p]; ++i) {
            g[i] = rounded(f.factor * (g[i] + f.decay * w[i]), stored[p + 1]);
            finite = finite && std::isfinite(g[i]);
          }
        }
        if (!finite) state.overflow = 1;
      });
}

std::unique_ptr<Kernel> bind(const Average& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    if (!updates(*as<StepState>(b.in[0]))) return;
    for (std::size_t p = 1; p < b.in.size(); p += 2)
      for (std::int64_t i = 0; i < counts[p]; ++i) {
        double& average = as<double>(b.in[p + 1])[i];
        average = op.decay * average + (1 - op.decay) * as<double>(b.in[p])[i];
      }
  });
}

std::unique_ptr<Kernel> bind(const UpdateStatistics& op, const Operands& operands) {
  return host_kernel("loops", [op, count = operands.in_shape(2).count()](const Buffers& b) {
    const auto& state = *as<StepState>(b.in[0]);
    const Optimizer& o = op.optimizer;
    BlockSums& sums = block_sums(as<BlockSums>(b.in[1]), state, op.blocks, op.block);
    if (op.first) sums.gradient_squares = sums.parameter_squares = sums.update_squares = 0;
    const double scale = static_cast<double>(state.loss_scale);
    sums.gradient_squares += squares(as<double>(b.in[3]), count) / (scale * scale);
    sums.parameter_squares += squares(as<double>(b.in[2]), count);
    for (std::int64_t i = 0; updates(state) && i < count; ++i) {
      const double before = as<double>(b.in[2])[i];
      double after = before;
      double m = o.moments() > 0 ? as<double>(b.in[4])[i] : 0;
      double v = o.moments() > 1 ? as<double>(b.in[5])[i] : 0;
      apply(o, state, after, as<double>(b.in[3])[i], o.moments() > 0 ? &m : nullptr,
            o.moments() > 1 ? &v : nullptr);
      sums.update_squares += (after - before) * (after - before);
    }
  });
}

}  // namespace warpstep::ref
