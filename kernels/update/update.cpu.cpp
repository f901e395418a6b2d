// The end of a step on the CPU: the optimiser, and around it the gradients' norm, accumulation,
// LARS and the average of the weights. Bound by memory: the optimiser moves 28 bytes per parameter
// for adam and 20 for sgd with momentum, each read and written once; moments in bf16 are widened
// and rounded in the first cache. Sums run over chunks, which are added in order: the same bits
// with any number of threads. Figures: bench/RECORDS.md.

#include <algorithm>
#include <cmath>

#include "engine/run/store.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/draws.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/update/gradients.h"

namespace warpstep::cpu {
namespace {

struct AdamFactors {
  float factor, decay, keep, one_minus_beta1, beta2, one_minus_beta2, root_scale, rate, epsilon;
};

AdamFactors adam_factors(const Optimizer& o, const StepState& state) {
  const double rate = static_cast<double>(state.learning_rate);
  const bool decoupled = o.kind == Optimizer::Kind::adamw;
  return {
      .factor = state.gradient_factor,
      .decay = static_cast<float>(decoupled ? 0 : o.weight_decay),
      .keep = static_cast<float>(decoupled ? 1 - rate * o.weight_decay : 1),
      .one_minus_beta1 = static_cast<float>(1 - o.beta1),
      .beta2 = static_cast<float>(o.beta2),
      .one_minus_beta2 = static_cast<float>(1 - o.beta2),
      .root_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(state.bias_correction2))),
      .rate = static_cast<float>(rate / static_cast<double>(state.bias_correction1)),
      .epsilon = static_cast<float>(o.epsilon)};
}

template <class G>
WARPSTEP_LOOP void adam_loop(const AdamFactors& f, float* __restrict p,
                             const G* __restrict gradient, float* __restrict m, float* __restrict v,
                             std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    m[i] += f.one_minus_beta1 * (g - m[i]);
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
    p[i] = f.keep * p[i] - f.rate * m[i] / (std::sqrt(v[i]) * f.root_scale + f.epsilon);
  }
}
template <class G>
const auto adam = vectorized<adam_loop<G>>();

struct SgdFactors {
  float factor, decay, momentum, nesterov, rate;
};

template <class G>
WARPSTEP_LOOP void sgd_with_momentum_loop(const SgdFactors& f, float* __restrict p,
                                          const G* __restrict gradient, float* __restrict m,
                                          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    m[i] = f.momentum * m[i] + g;
    p[i] -= f.rate * (f.nesterov != 0 ? g + f.momentum * m[i] : m[i]);
  }
}
template <class G>
const auto sgd_with_momentum = vectorized<sgd_with_momentum_loop<G>>();

template <class G>
WARPSTEP_LOOP void sgd_loop(const SgdFactors& f, float* __restrict p, const G* __restrict gradient,
                            std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    p[i] -= f.rate * (f.factor * as_float(gradient[i]) + f.decay * p[i]);
}
template <class G>
const auto sgd = vectorized<sgd_loop<G>>();

struct RmspropFactors {
  float factor, decay, alpha, one_minus_alpha, epsilon, momentum, rate;
};

template <class G>
WARPSTEP_LOOP void rmsprop_loop(const RmspropFactors& f, float* __restrict p,
                                const G* __restrict gradient, float* __restrict square,
                                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    square[i] = f.alpha * square[i] + f.one_minus_alpha * (g * g);
    p[i] -= f.rate * (g / (std::sqrt(square[i]) + f.epsilon));
  }
}
template <class G>
const auto rmsprop = vectorized<rmsprop_loop<G>>();

template <class G>
WARPSTEP_LOOP void rmsprop_with_momentum_loop(const RmspropFactors& f, float* __restrict p,
                                              const G* __restrict gradient,
                                              float* __restrict square, float* __restrict m,
                                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    square[i] = f.alpha * square[i] + f.one_minus_alpha * (g * g);
    m[i] = f.momentum * m[i] + g / (std::sqrt(square[i]) + f.epsilon);
    p[i] -= f.rate * m[i];
  }
}
template <class G>
const auto rmsprop_with_momentum = vectorized<rmsprop_with_momentum_loop<G>>();

WARPSTEP_LOOP void copy_loop(const float* __restrict p, Bf16* __restrict copy, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) copy[i] = rounded_to<Bf16>(p[i]);
}
const auto copy_parameters = vectorized<copy_loop>();

// An optimiser's rule in one step, for gradients of type G.
template <class G>
class Rule {
 public:
  Rule(const Optimizer& o, const StepState& state)
      : kind_(o.kind),
        moments_(o.moments()),
        adam_(adam_factors(o, state)),
        sgd_{state.gradient_factor, static_cast<float>(o.weight_decay),
             static_cast<float>(o.momentum), o.nesterov ? 1.0F : 0.0F, state.learning_rate},
        rmsprop_{state.gradient_factor,
                 static_cast<float>(o.weight_decay),
                 static_cast<float>(o.alpha),
                 static_cast<float>(1 - o.alpha),
                 static_cast<float>(o.epsilon),
                 static_cast<float>(o.momentum),
                 state.learning_rate} {}

  // Of `count` elements; m and v are null where the rule has no such moment.
  void operator()(float* p, const G* g, float* m, float* v, std::int64_t count) const {
    if (kind_ == Optimizer::Kind::rmsprop && moments_ == 2)
      rmsprop_with_momentum<G>(rmsprop_, p, g, m, v, count);
    else if (kind_ == Optimizer::Kind::rmsprop)
      rmsprop<G>(rmsprop_, p, g, m, count);
    else if (moments_ == 2)
      adam<G>(adam_, p, g, m, v, count);
    else if (moments_ == 1)
      sgd_with_momentum<G>(sgd_, p, g, m, count);
    else
      sgd<G>(sgd_, p, g, count);
  }

 private:
  Optimizer::Kind kind_;
  int moments_;
  AdamFactors adam_;
  SgdFactors sgd_;
  RmspropFactors rmsprop_;
};

// Moments in bf16, see Optimizer::moment_dtype.

constexpr std::int64_t rounded_at_once = 4 * draws_at_once;

WARPSTEP_LOOP void widen_loop(const Bf16* __restrict from, float* __restrict to,
                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}
const auto widen = vectorized<widen_loop>();

WARPSTEP_LOOP void round_loop(const Draws& words, int moment, const float* __restrict from,
                              Bf16* __restrict to, std::int64_t count) {
  alignas(64) std::uint32_t bits[rounded_at_once];
  for (std::int64_t i = 0; i < draws_at_once; ++i)
    for (std::int64_t l = 0; l < 4; ++l) bits[4 * i + l] = moment_bits(words.lane[l][i], moment);
  for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed_at_random(from[i], bits[i]);
}
const auto round_at_random = vectorized<round_loop>();

// Gradients of type G and moments of type M of one chunk, whose first element is at `place` of the
// sections.
template <class G, class M>
void update_chunk(const Rule<G>& rule, const StepState& state, std::int64_t place, float* p,
                  const G* g, M* m, M* v, std::int64_t count) {
  if constexpr (std::is_same_v<M, float>) {
    rule(p, g, m, v, count);
  } else {
    const Sequence draws{state.seed, Purpose::moments,
                         static_cast<std::uint32_t>(state.update_index)};
    Draws words;
    float first[rounded_at_once], second[rounded_at_once];
    for (std::int64_t i = 0; i < count; i += rounded_at_once) {
      const std::int64_t n = std::min(rounded_at_once, count - i);
      if (m) widen(m + i, first, n);
      if (v) widen(v + i, second, n);
      rule(p + i, g + i, m ? first : nullptr, v ? second : nullptr, n);
      draw_all(draws, idx(place + i) / 4, words);
      if (m) round_at_random(words, 0, first, m + i, n);
      if (v) round_at_random(words, 1, second, v + i, n);
    }
  }
}

// Gradients of type G and moments of type M; `copies` may be null. The run's first element is at
// `place` of the sections.
template <class G, class M>
void update(const Optimizer& o, const Buffers& b, Bf16* copies, const OwnPart& part,
            std::int64_t place) {
  const StepState state = *as<StepState>(b.in[2]);
  if (!updates(state)) return;
  const Rule<G> rule(o, state);
  float* p = as<float>(b.in[0]) + part.begin;
  const G* g = as<G>(b.in[1]) + part.begin;
  M* m = o.moments() > 0 ? as<M>(b.in[3]) + part.moments : nullptr;
  M* v = o.moments() > 1 ? as<M>(b.in[4]) + part.moments : nullptr;
  Bf16* copy = copies ? copies + part.begin : nullptr;
  for_chunks(part.elements, [&](std::int64_t i, std::int64_t end) {
    const std::int64_t n = end - i;
    update_chunk<G, M>(rule, state, place + part.begin + i, p + i, g + i, m ? m + i : nullptr,
                       v ? v + i : nullptr, n);
    if (copy) copy_parameters(p + i, copy + i, n);
  });
}

// The gradient is f32 in a step in bf16, too, if it is a sum over steps.
std::unique_ptr<Kernel> bind_update(const Update& op, const Operands& operands,
                                    std::int64_t count) {
  const SectionRun run = update_run(operands.graph, operands.node, count);
  const OwnPart part = own_part(operands.graph, run);
  return with_stored(operands.in(1).type.dtype, [&]<class G>() {
    return with_stored(op.optimizer.moment_dtype, [&]<class M>() {
      return host_kernel("loops", [op, part, place = run.begin](const Buffers& b) {
        update<G, M>(op.optimizer, b, op.copy ? as<Bf16>(b.in[op.operands() - 1]) : nullptr, part,
                     place);
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return host_kernel("clock", [op](const Buffers& b) {
    tick(*as<StepState>(b.in[0]), op.schedule, op.beta1, op.beta2, op.scaling, op.accumulate,
         op.replica);
  });
}

std::unique_ptr<Kernel> bind(const Report&, const Operands&) {
  return host_kernel("report", [](const Buffers& b) {
    const auto& state = *as<StepState>(b.in[b.in.size() - 2]);
    const std::int32_t correct = b.in.size() == 4 ? *as<std::int32_t>(b.in[1]) : 0;
    as<StepReport>(b.in.back())[state.step % report_ring] =
        report_of(*as<float>(b.in[0]), correct, state);
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  return bind_update(op, operands, operands.in_shape(0).count());
}

// One sweep over the sections: padding between parameters is zero, and so are its gradient and
// moments, which keeps it zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  return bind_update({op.optimizer, op.copy}, operands,
                     section_elements(operands.graph, operands.node));
}

// Norm, accumulation, LARS and average.

namespace {

template <class T>
WARPSTEP_LOOP double square_of(T x) {
  const auto wide = static_cast<double>(as_float(x));
  return wide * wide;
}

template <class T>
WARPSTEP_LOOP double squares_of_loop(const T* x, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  double sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) sums[l] += square_of(x[i + l]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t i = whole; i < count; ++i) sum += square_of(x[i]);
  return sum;
}
template <class T>
const auto squares_of = vectorized<squares_of_loop<T>>();

// `partial` has one element per chunk. The result is finite exactly if all elements are: squares of
// f32 do not overflow in double.
template <class T>
double squares(const T* x, std::int64_t count, double* partial) {
  for_chunks(count, [&](std::int64_t i, std::int64_t end) {
    partial[i / chunk_elements] = squares_of<T>(x + i, end - i);
  });
  double sum = 0;
  for (std::int64_t c = 0; c < chunks(count); ++c) sum += partial[c];
  return sum;
}

template <class G>
WARPSTEP_LOOP void accumulate_loop(float* __restrict sum, const G* __restrict gradient, float keep,
                                   float share, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = keep * sum[i] + share * as_float(gradient[i]);
}
template <class G>
const auto accumulate = vectorized<accumulate_loop<G>>();

// What does not change is its own average, whatever the share is rounded to.
WARPSTEP_LOOP void move_towards_loop(float* __restrict average, const float* __restrict parameter,
                                     float share, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += share * (parameter[i] - average[i]);
}
const auto move_towards = vectorized<move_towards_loop>();

template <class G>
WARPSTEP_LOOP void scale_loop(G* __restrict gradient, const float* __restrict parameter,
                              float factor, float decay, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    gradient[i] = rounded_to<G>(factor * (as_float(gradient[i]) + decay * parameter[i]));
}
template <class G>
const auto scale = vectorized<scale_loop<G>>();

}  // namespace

namespace {

// The squares of all gradients where each rank has the means of its share alone: the sums of its
// chunks are exchanged, and all are added in order, as in one process.
template <class G>
double squares_of_shares(const G* gradients, const OwnPart& part, std::int64_t most,
                         double* partial, Communicator& communicator) {
  const std::int64_t ranks = communicator.world().size;
  std::fill_n(partial, ranks * most, 0.0);
  squares(gradients + part.begin, part.elements, partial + most * communicator.world().rank);
  communicator.all_gather(std::as_writable_bytes(std::span(partial, idx(ranks * most))));
  double sum = 0;
  for (std::int64_t c = 0; c < ranks * most; ++c) sum += partial[c];
  return sum;
}

// Throws where a kernel was compiled for another number of ranks; a listing binds it without a job.
void require_ranks(const Communicator* communicator, std::int64_t ranks) {
  if (const int size = communicator ? communicator->world().size : 1; size != ranks)
    fail<Error>("the step was compiled for {} ranks, and the job has {}", ranks, size);
}

}  // namespace

std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  const std::int64_t count = section_elements(operands.graph);
  const std::int64_t ranks = operands.graph.shards.ranks;
  const OwnPart part = own_part(operands.graph, {0, 0, count, {}});
  const std::int64_t most = ranks > 1 ? chunks(count) / ranks + 1 : chunks(count);  // of a rank
  return with_stored(operands.in(1).type.dtype, [&]<class G>() {
    return host_kernel(
        "loops",
        [op, count, ranks, part, most,
         communicator = operands.context.communicator](const Buffers& b) {
          auto* partial = as<double>(b.workspace);
          if (ranks > 1) require_ranks(communicator.get(), ranks);
          const double sum =
              ranks > 1 ? squares_of_shares(as<G>(b.in[1]), part, most, partial, *communicator)
                        : squares(as<G>(b.in[1]), count, partial);
          settle_norm(*as<StepState>(b.in[0]), sum, std::isfinite(sum), op.clip_norm);
        },
        idx(ranks * most) * sizeof(double));
  });
}

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands& operands) {
  return with_stored(operands.in(1).type.dtype, [&]<class G>() {
    return host_kernel("loops", [op, count = section_elements(operands.graph)](const Buffers& b) {
      const bool first = as<StepState>(b.in[0])->micro_step == 0;
      const G* gradient = as<G>(b.in[1]);
      const auto share = static_cast<float>(1.0 / static_cast<double>(op.steps));
      float* sum = as<float>(b.in[2]);
      for_chunks(count, [&](std::int64_t i, std::int64_t end) {
        const std::int64_t n = end - i;
        if (first) std::fill_n(sum + i, n, 0.0F);  // not a factor of 0: old values may be infinite
        accumulate<G>(sum + i, gradient + i, 1, share, n);
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const AllReduce& op, const Operands& operands) {
  if (op.ranks > 1 && operands.in(0).type.dtype != DType::f32)
    fail<Error>("gradients are summed over ranks in f32, not in {}",
                name(operands.in(0).type.dtype));
  const auto share = static_cast<float>(1.0 / static_cast<double>(op.ranks));
  return host_kernel("ordered exchange",
                     [op, share, communicator = operands.context.communicator,
                      runs = section_runs(operands.graph, operands.node)](const Buffers& b) {
                       require_ranks(communicator.get(), op.ranks);
                       if (op.ranks == 1) return;
                       for (const SectionRun& run : runs) {
                         const std::span values(as<float>(b.in[run.input]), idx(run.elements));
                         if (op.to_owners)
                           communicator->sum_own(values, run.ends, share);
                         else
                           communicator->sum(values, share);
                       }
                     });
}

std::unique_ptr<Kernel> bind(const AllGather& op, const Operands& operands) {
  std::vector<SectionRun> runs = section_runs(operands.graph, operands.node);
  for (SectionRun& run : runs) {  // in bytes
    const std::size_t bytes = size_bytes(operands.in(static_cast<int>(run.input)).type.dtype);
    run.elements *= static_cast<std::int64_t>(bytes);
    for (std::size_t& end : run.ends) end *= bytes;
  }
  return host_kernel("exchange", [op, communicator = operands.context.communicator,
                                  runs = std::move(runs)](const Buffers& b) {
    require_ranks(communicator.get(), op.ranks);
    if (op.ranks == 1) return;
    for (const SectionRun& run : runs)
      communicator->all_gather(std::span(as<std::byte>(b.in[run.input]), idx(run.elements)),
                               run.ends);
  });
}

std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands& operands) {
  const std::vector<std::size_t> scaled = lars_inputs(operands.graph, operands.node);
  std::vector<std::int64_t> counts(operands.node.in.size());
  std::int64_t most = 0;
  for (const std::size_t p : scaled) {
    counts[p] = operands.in_shape(static_cast<int>(p)).count();
    most = std::max(most, counts[p]);
  }
  return with_stored(operands.in(2).type.dtype, [&]<class G>() {
    return host_kernel(
        "loops",
        [op, scaled, counts](const Buffers& b) {
          const auto& state = *as<StepState>(b.in[0]);
          if (!updates(state)) return;
          auto* partial = as<double>(b.workspace);
          for (const std::size_t p : scaled) {
            const float* w = as<float>(b.in[p]);
            G* g = as<G>(b.in[p + 1]);
            const double w_squares = squares(w, counts[p], partial);
            const LarsFactor f = lars_factor(op, state, w_squares, squares(g, counts[p], partial));
            if (f.factor == 0) continue;
            for_chunks(counts[p], [&](std::int64_t i, std::int64_t end) {
              const std::int64_t n = end - i;
              scale<G>(g + i, w + i, static_cast<float>(f.factor), static_cast<float>(f.decay), n);
            });
          }
        },
        idx(chunks(most)) * sizeof(double));
  });
}

std::unique_ptr<Kernel> bind(const Average& op, const Operands& operands) {
  return host_kernel("loops", [op, count = section_elements(operands.graph)](const Buffers& b) {
    if (!updates(*as<StepState>(b.in[0]))) return;
    const float* parameter = as<float>(b.in[1]);
    float* average = as<float>(b.in[2]);
    for_chunks(count, [&](std::int64_t i, std::int64_t end) {
      move_towards(average + i, parameter + i, static_cast<float>(1 - op.decay), end - i);
    });
  });
}

// Statistics.

namespace {

// y -= x
WARPSTEP_LOOP void subtract_loop(const float* __restrict x, float* __restrict y,
                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] -= x[i];
}
const auto subtract = vectorized<subtract_loop>();

void copy_moment(const float* from, float* to, std::int64_t count) {
  std::copy_n(from, count, to);
}
void copy_moment(const Bf16* from, float* to, std::int64_t count) {
  widen(from, to, count);
}

// The squares of what `rule` adds to `count` parameters, computed on copies in the first cache.
template <class G, class M>
double squares_of_update(const Rule<G>& rule, const float* p, const G* g, const M* m, const M* v,
                         std::int64_t count) {
  constexpr std::int64_t most = 1024;
  float after[most], first[most], second[most];
  double sum = 0;
  for (std::int64_t i = 0; i < count; i += most) {
    const std::int64_t n = std::min(most, count - i);
    std::copy_n(p + i, n, after);
    if (m) copy_moment(m + i, first, n);
    if (v) copy_moment(v + i, second, n);
    rule(after, g + i, m ? first : nullptr, v ? second : nullptr, n);
    subtract(p + i, after, n);
    sum += squares_of<float>(after, n);
  }
  return sum;
}

}  // namespace

namespace {

template <class G, class M>
void measure(const UpdateStatistics& op, const Buffers& b, std::int64_t count) {
  const auto& state = *as<StepState>(b.in[0]);
  const Rule<G> rule(op.optimizer, state);
  const float* p = as<float>(b.in[2]);
  const G* g = as<G>(b.in[3]);
  const M* m = op.optimizer.moments() > 0 ? as<M>(b.in[4]) : nullptr;
  const M* v = op.optimizer.moments() > 1 ? as<M>(b.in[5]) : nullptr;
  auto* partial = as<double>(b.workspace);
  BlockSums& sums = block_sums(as<BlockSums>(b.in[1]), state, op.blocks, op.block);
  const double unscale = 1 / static_cast<double>(state.loss_scale);
  const double gradient = squares(g, count, partial) * unscale * unscale;
  const double parameter = squares(p, count, partial);
  double update = 0;
  if (updates(state)) {
    for_chunks(count, [&](std::int64_t i, std::int64_t end) {
      partial[i / chunk_elements] = squares_of_update<G, M>(rule, p + i, g + i, m ? m + i : nullptr,
                                                            v ? v + i : nullptr, end - i);
    });
    for (std::int64_t c = 0; c < chunks(count); ++c) update += partial[c];
  }
  sums.gradient_squares = gradient + (op.first ? 0 : sums.gradient_squares);
  sums.parameter_squares = parameter + (op.first ? 0 : sums.parameter_squares);
  sums.update_squares = update + (op.first ? 0 : sums.update_squares);
}

}  // namespace

std::unique_ptr<Kernel> bind(const UpdateStatistics& op, const Operands& operands) {
  const std::int64_t count = operands.in_shape(2).count();
  return with_stored(operands.in(3).type.dtype, [&]<class G>() {
    return with_stored(op.optimizer.moment_dtype, [&]<class M>() {
      return host_kernel(
          "loops", [op, count](const Buffers& b) { measure<G, M>(op, b, count); },
          idx(chunks(count)) * sizeof(double));
    });
  });
}

}  // namespace warpstep::cpu
