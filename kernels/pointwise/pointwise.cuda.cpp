#include "kernels/pointwise/pointwise.cuda.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {

std::unique_ptr<Kernel> bind(const Normalize& op, const Operands& operands) {
  NormalizeShape shape{.pixels = rows_of(operands.in_shape(0)),
                       .channels = static_cast<int>(operands.in_shape(0).back()),
                       .pitch = static_cast<int>(operands.stored_out().back()),
                       .scale = op.scale,
                       .shift = op.shift};
  return launch_kernel("normalize", [shape, dtype = op.dtype](const Buffers& b, CudaStream& s) {
    normalize(shape, as<std::uint8_t>(b.in[0]), b.out[0], dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Relu&, const Operands& operands) {
  return launch_kernel("relu", [count = operands.stored_out().count(),
                                dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
    relu(b.in[0], b.out[0], count, dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const ReluGrad&, const Operands& operands) {
  return launch_kernel("relu_grad",
                       [count = operands.stored_out().count(), dtype = operands.dtype_out()](
                           const Buffers& b, CudaStream& s) {
                         relu_grad(b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const Add&, const Operands& operands) {
  return launch_kernel("add", [count = operands.stored_out().count(), dtype = operands.dtype_out()](
                                  const Buffers& b, CudaStream& s) {
    add(b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Reorder&, const Operands& operands) {
  const std::int64_t rows = rows_of(operands.in_shape(0)), columns = operands.in_shape(0).back(),
                     from = operands.stored_in(0).back(), to = operands.stored_out().back();
  return launch_kernel(
      "copy_rows", [=, bytes = size_bytes(operands.dtype_in(0))](const Buffers& b, CudaStream& s) {
        copy_rows(b.in[0], from, b.out[0], to, rows, columns, bytes, s.handle());
      });
}

// From memory that the loader pinned, at the speed of the bus; the runtime tells by the addresses
// which way.
std::unique_ptr<Kernel> bind(const Upload&, const Operands& operands) {
  return launch_kernel(
      "copy", [bytes = operands.out().layout.bytes](const Buffers& b, CudaStream& s) {
        check(cudaMemcpyAsync(b.out[0], b.in[0], bytes, cudaMemcpyDefault, s.handle()),
              "cudaMemcpyAsync");
      });
}

}  // namespace warpstep::cuda
