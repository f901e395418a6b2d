// Sums over a block's output, read once: bound by memory. Sums run over chunks, which are added in
// order: the same bits with any number of threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

struct Sums {
  double sum, squares, largest, nonzero;
};

template <class T>
WARPSTEP_LOOP void sums_of_loop(const T* x, std::int64_t count, Sums* to) {
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
const auto sums_of = vectorized<sums_of_loop<T>>();

}  // namespace

std::unique_ptr<Kernel> bind(const ActivationStatistics& op, const Operands& operands) {
  const std::int64_t count = operands.in_shape(2).count();
  return with_stored(operands.in(2).type.dtype, [&]<class T>() {
    return host_kernel(
        "vector loops",
        [op, count](const Buffers& b) {
          auto* partial = as<Sums>(b.workspace);
          for_chunks(count, [&](std::int64_t i, std::int64_t end) {
            sums_of<T>(as<T>(b.in[2]) + i, end - i, &partial[i / chunk_elements]);
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

}  // namespace warpstep::cpu
