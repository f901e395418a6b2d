// The end of a step on the CPU: the optimiser, and around it the gradients' norm, accumulation,
// LARS and the average of the weights. Bound by memory: the optimiser moves 28 bytes per parameter
// for adam and 20 for sgd with momentum, each read and written once; moments in bf16 are widened
// and rounded in the first cache. Sums run over chunks, which are added in order: the same bits
// with any number of threads. Figures: bench/RECORDS.md.

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/core/record.h"
#include "engine/run/store.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/draws.h"
#include "kernels/cpu/floats.h"
#include "kernels/update/gradients.h"
#include "kernels/update/rule.cpu.h"
#include "kernels/update/squares.cpu.h"

namespace warpstep::cpu {
namespace {

// Parameters that are copied while they are in the first cache. Their copies' lines are asked for
// before: no core looks ahead from one piece to the next.
constexpr std::int64_t copied_at_once = 1024;

// Moments in bf16, see Optimizer::moment_dtype.

constexpr std::int64_t rounded_at_once = 4 * draws_at_once;

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

void ask_to_write(const Bf16* copy, std::int64_t count) {
  constexpr std::int64_t line = 32;  // elements
  for (std::int64_t i = 0; i < count; i += line) __builtin_prefetch(copy + i, 1);
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
    const std::int64_t most = copy ? copied_at_once : end - i;
    for (; i < end; i += most) {
      const std::int64_t n = std::min(most, end - i);
      if (copy) ask_to_write(copy + i, n);
      update_chunk<G, M>(rule, state, place + part.begin + i, p + i, g + i, m ? m + i : nullptr,
                         v ? v + i : nullptr, n);
      if (copy) convert_row(p + i, n, copy + i);
    }
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

// Returns whether all results are finite. As integers, magnitudes have the same order, infinity and
// NaNs at the end.
template <class G>
WARPSTEP_LOOP bool scale_loop(G* __restrict gradient, const float* __restrict parameter,
                              float factor, float decay, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    gradient[i] = rounded_to<G>(factor * (as_float(gradient[i]) + decay * parameter[i]));
    largest = std::max(largest, std::bit_cast<std::uint32_t>(as_float(gradient[i])) & 0x7fffffffU);
  }
  return largest < 0x7f800000U;
}
template <class G>
const auto scale = vectorized<scale_loop<G>>();

// The squares of all gradients where each rank has the means of its share alone: the sums of its
// chunks are exchanged, and all are added in order, as in one process.
template <class G>
double squares_of_shares(const G* gradients, const OwnPart& part, std::int64_t most,
                         double* partial, Communicator& communicator) {
  const std::int64_t ranks = communicator.world().size;
  std::fill_n(partial, ranks * most, 0.0);
  squares(gradients + part.begin, part.elements, partial + most * communicator.world().rank);
  static const record::Name name{"all_gather squares", record::Kind::range, true};
  const record::Span span(name);
  communicator.all_gather(std::as_writable_bytes(std::span(partial, idx(ranks * most))));
  double sum = 0;
  for (std::int64_t c = 0; c < ranks * most; ++c) sum += partial[c];
  return sum;
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
          if (ranks > 1) require_ranks(ranks, communicator);
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
          auto& state = *as<StepState>(b.in[0]);
          if (state.update == 0) return;
          auto* partial = as<double>(b.workspace);
          bool finite = true;
          for (const std::size_t p : scaled) {
            const float* w = as<float>(b.in[p]);
            G* g = as<G>(b.in[p + 1]);
            const double w_squares = squares(w, counts[p], partial);
            const LarsFactor f = lars_factor(op, state, w_squares, squares(g, counts[p], partial));
            if (f.factor == 0) continue;
            for_chunks(counts[p], [&](std::int64_t i, std::int64_t end) {
              const bool fits = scale<G>(g + i, w + i, static_cast<float>(f.factor),
                                         static_cast<float>(f.decay), end - i);
              partial[i / chunk_elements] = fits ? 0 : 1;
            });
            for (std::int64_t c = 0; c < chunks(counts[p]); ++c) finite = finite && partial[c] == 0;
          }
          if (!finite) state.overflow = 1;
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

}  // namespace warpstep::cpu
