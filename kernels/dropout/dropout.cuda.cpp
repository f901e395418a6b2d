// Binds dropout to its launcher.
#include "kernels/dropout/dropout.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const Dropout& op, const Operands& operands) {
  const DropoutShape shape{.rows = rows_of(operands.in_shape(0)),
                           .columns = operands.in_shape(0).back(),
                           .stored = operands.stored_in(0).back(),
                           .rate = op.rate,
                           .layer = op.layer};
  return launch_kernel(
      "dropout", [shape, dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
        dropout(shape, b.in[0], as<StepState>(b.in[1]), b.out[0], dtype, s.handle());
      });
}

}  // namespace warpstep::cuda
