// Batch norm and the max pool after it, one after the other.
#include <array>
#include <vector>

#include "kernels/norm/norm.ref.h"
#include "kernels/pool/pool.ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const NormPool& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0), y = operands.out_shape()](const Buffers& b) {
        std::vector<double> normed(idx(x.count()));
        const std::array<void*, 3> out{normed.data(), b.out[2], b.out[3]};
        normalise(op.norm, x, {.in = b.in, .out = out});
        pool_maxima(op.pool, x, y, normed.data(), as<double>(b.out[0]), as<std::uint8_t>(b.out[1]));
      });
}

std::unique_ptr<Kernel> bind(const NormPoolGrad& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(2), y = operands.in_shape(0)](const Buffers& b) {
        std::vector<double> d_normed(idx(x.count()));
        spread_to_maxima(op.pool, x, y, as<double>(b.in[0]), as<std::uint8_t>(b.in[1]),
                         d_normed.data());
        const std::array<void*, 5> in{d_normed.data(), b.in[2], b.in[3], b.in[4], b.in[5]};
        norm_gradients({}, x, {.in = in, .out = b.out});
      });
}

}  // namespace warpstep::ref
