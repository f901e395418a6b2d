// Binds elementwise ops, uploads and reorders to their launchers.
#include "kernels/pointwise/pointwise.cuda.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

// The adjoint with the column sums of its result. Channels of a convolution in groups, and sums
// with a plain value, are not padded and may not be whole vectors: then the sums are a separate
// pass.
std::unique_ptr<Kernel> bind_relu_grad_with_sums(const Operands& operands) {
  const DType dtype = operands.dtype_out();
  const Shape& d_x = operands.stored_out();
  const std::int64_t rows = rows_of(d_x), channels = d_x.back(),
                     sums = operands.stored_out(1).back();
  if (sums != channels || !are_whole_vectors(channels, dtype))
    return launch_kernel(
        "relu_grad + column_sums", [=, count = d_x.count()](const Buffers& b, CudaStream& s) {
          relu_grad(b.in[0], b.in[1], b.out[0], count, dtype, s.handle());
          column_sums_unaligned(b.out[0], channels, b.out[1], rows, sums, dtype, s.handle());
        });
  return launch_kernel(
      "relu_grad_sums",
      [=, tickets = Ticket(operands.context, column_sums_tickets(channels))](const Buffers& b,
                                                                             CudaStream& s) {
        relu_grad_sums(b.in[0], b.in[1], b.out[0], b.out[1], rows, channels, dtype, b.workspace,
                       tickets.word(), s.handle());
      },
      column_sums_workspace(rows, channels));
}

}  // namespace

std::unique_ptr<Kernel> bind(const Normalize& op, const Operands& operands) {
  NormalizeShape shape{.pixels = rows_of(operands.in_shape(0)),
                       .channels = static_cast<int>(operands.in_shape(0).back()),
                       .pitch = static_cast<int>(operands.stored_out().back()),
                       .scale = op.scale,
                       .shift = op.shift};
  const bool bytes = operands.dtype_in(0) == DType::u8;
  return launch_kernel("normalize",
                       [shape, bytes, dtype = op.dtype](const Buffers& b, CudaStream& s) {
                         if (bytes)
                           normalize(shape, as<std::uint8_t>(b.in[0]), b.out[0], dtype, s.handle());
                         else
                           normalize(shape, as<float>(b.in[0]), b.out[0], dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const Relu&, const Operands& operands) {
  return launch_kernel("relu", [count = operands.stored_out().count(),
                                dtype = operands.dtype_out()](const Buffers& b, CudaStream& s) {
    relu(b.in[0], b.out[0], count, dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const ReluGrad& op, const Operands& operands) {
  if (op.bias_gradient) return bind_relu_grad_with_sums(operands);
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

// From memory that the loader pinned, at the speed of the bus; the runtime infers the direction
// from the addresses.
std::unique_ptr<Kernel> bind(const Upload&, const Operands& operands) {
  return launch_kernel(
      "copy", [bytes = operands.out().layout.bytes](const Buffers& b, CudaStream& s) {
        check(cudaMemcpyAsync(b.out[0], b.in[0], bytes, cudaMemcpyDefault, s.handle()),
              "cudaMemcpyAsync");
      });
}

}  // namespace warpstep::cuda
