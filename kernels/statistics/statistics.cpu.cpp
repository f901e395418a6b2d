// Sums over a block's output, its parameters and their gradients, each read once: bound by memory.
// Sums run over chunks, which are added in order: the same bits with any number of threads.
#include <algorithm>
#include <cmath>

#include "kernels/update/gradients.h"
#include "kernels/update/rule.cpu.h"
#include "kernels/update/squares.cpu.h"

namespace warpstep::cpu {
namespace {

struct Sums {
  double sum, squares, largest, nonzero;
};

template <class T>
WARPSTEP_LOOP void statistics_loop(const T* x, std::int64_t count, Sums* to) {
  constexpr std::int64_t lanes = 16;
  double sum[lanes] = {}, squares[lanes] = {};
  float largest[lanes] = {}, nonzero[lanes] = {};  // a chunk's count is exact in float
  const auto add = [&](std::int64_t l, float value) {
    const auto wide = static_cast<double>(value);
    const float magnitude = value < 0 ? -value : value;
    sum[l] += wide;
    squares[l] += wide * wide;
    largest[l] = magnitude > largest[l] ? magnitude : largest[l];
    nonzero[l] += value != 0 ? 1.0F : 0.0F;
  };
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) add(l, as_float(x[i + l]));
  for (std::int64_t i = whole; i < count; ++i) add(i - whole, as_float(x[i]));
  *to = {};
  for (std::int64_t l = 0; l < lanes; ++l) {
    to->sum += sum[l];
    to->squares += squares[l];
    to->nonzero += static_cast<double>(nonzero[l]);
    const auto most = static_cast<double>(largest[l]);
    to->largest = most > to->largest ? most : to->largest;
  }
}
template <class T>
const auto statistics_of = vectorized<statistics_loop<T>>();

}  // namespace

std::unique_ptr<Kernel> bind(const ActivationStatistics& op, const Operands& operands) {
  const std::int64_t count = operands.in_shape(2).count();
  return with_stored(operands.in(2).type.dtype, [&]<class T>() {
    return host_kernel(
        "vector loops",
        [op, count](const Buffers& b) {
          auto* partial = as<Sums>(b.workspace);
          for_chunks(count, [&](std::int64_t i, std::int64_t end) {
            statistics_of<T>(as<T>(b.in[2]) + i, end - i, &partial[i / chunk_elements]);
          });
          Sums all{};
          for (std::int64_t c = 0; c < chunks(count); ++c) {
            all.sum += partial[c].sum;
            all.squares += partial[c].squares;
            all.largest = std::max(all.largest, partial[c].largest);
            all.nonzero += partial[c].nonzero;
          }
          BlockSums& row =
              block_sums(as<BlockSums>(b.in[1]), *as<StepState>(b.in[0]), op.blocks, op.block);
          row.sum = all.sum;
          row.squares = all.squares;
          row.largest = all.largest;
          row.nonzero = all.nonzero;
        },
        idx(chunks(count)) * sizeof(Sums));
  });
}

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
