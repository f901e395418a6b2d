// Binds augmentation to its launcher.
#include "kernels/pixels/pixels.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const Augment& op, const Operands& operands) {
  const Shape& images = operands.in_shape(0);
  const AugmentShape shape{.rows = operands.out_shape()[0],
                           .source = {images[1], images[2]},
                           .out = op.out,
                           .pitch = static_cast<int>(operands.stored_out().back()),
                           .plan = op.plan};
  return launch_kernel("augment", [shape, dtype = op.dtype](const Buffers& b, CudaStream& s) {
    augment(shape, as<std::uint8_t>(b.in[0]), as<RowPlan>(b.in[1]), b.out[0], dtype, s.handle());
  });
}

}  // namespace warpstep::cuda
