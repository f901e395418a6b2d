// apply_pixels(), the loader's own vector code, with one task per row of the batch;
// engine/core/pixels.cpp says what bounds it.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> bind(const Augment& op, const Operands& operands) {
  const Shape images = operands.in_shape(0), out = operands.out_shape();
  return with_stored(op.dtype, [&]<class T>() {
    return host_kernel("vector loops", [op, images, out](const Buffers& b) {
      const std::span rows(as<const RowPlan>(b.in[1]), idx(out[0]));
      const std::int64_t elements = out[1] * out[2] * out[3];
#pragma omp parallel for schedule(dynamic)
      for (std::int64_t n = 0; n < out[0]; ++n)
        apply_pixels(op.plan, rows, idx(n), as<std::uint8_t>(b.in[0]), {images[1], images[2]},
                     op.out, as<T>(b.out[0]) + n * elements);
    });
  });
}

}  // namespace warpstep::cpu
