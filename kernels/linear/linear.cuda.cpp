#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

using Epilogue = Matmul::Epilogue;

std::shared_ptr<MatmulPlan> plan(const Operands& operands, const Matmul& matmul) {
  return operands.context.matmul->plan(matmul, operands.node.title());
}

}  // namespace

// y [N,out] = x [N,K] weight^T: both operands are read along K, as tensor cores like it best.
std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  const Shape &x = operands.stored_in(0), &w = operands.stored_in(1);
  const Matmul matmul{.dtype = operands.dtype_in(0),
                      .rows = x[0],
                      .columns = w[0],
                      .depth = x[1],
                      .transpose_b = true,
                      .pitch_a = x[1],
                      .pitch_b = w[1],
                      .pitch_d = w[0],
                      .epilogue = !op.bias  ? Epilogue::none
                                  : op.relu ? Epilogue::relu_bias
                                            : Epilogue::bias};
  const auto planned = plan(operands, matmul);
  const bool relu_alone = op.relu && !op.bias;
  return launch_kernel(
      planned->implementation() + (relu_alone ? " + relu" : ""),
      [planned, relu_alone, bias = op.bias, count = x[0] * w[0], dtype = matmul.dtype](
          const Buffers& b, CudaStream& s) {
        planned->execute(
            s, {.a = b.in[0], .b = b.in[1], .d = b.out[0], .bias = bias ? b.in[2] : nullptr},
            b.workspace);
        if (relu_alone) relu(b.out[0], b.out[0], count, dtype, s.handle());
      },
      planned->workspace_bytes());
}

// d_x [N,K] = d_z [N,out] weight [out,K].
std::unique_ptr<Kernel> bind(const LinearDataGrad&, const Operands& operands) {
  const Shape &d_z = operands.stored_in(0), &w = operands.stored_in(1);
  const auto planned = plan(operands, {.dtype = operands.dtype_in(0),
                                       .rows = d_z[0],
                                       .columns = w[1],
                                       .depth = w[0],
                                       .pitch_a = d_z[1],
                                       .pitch_b = w[1],
                                       .pitch_d = w[1]});
  return launch_kernel(
      planned->implementation(),
      [planned](const Buffers& b, CudaStream& s) {
        planned->execute(s, {.a = b.in[0], .b = b.in[1], .d = b.out[0]}, b.workspace);
      },
      planned->workspace_bytes());
}

// d_weight [out,K] = d_z^T [out,N] x [N,K]; d_bias, the sums of d_z's columns, ride along where
// cublasLt has an algorithm that gives them.
std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const Shape &x = operands.stored_in(0), &d_z = operands.stored_in(1);
  Matmul matmul{.dtype = operands.dtype_in(0),
                .rows = d_z[1],
                .columns = x[1],
                .depth = x[0],
                .transpose_a = true,
                .pitch_a = d_z[1],
                .pitch_b = x[1],
                .pitch_d = x[1],
                .epilogue = op.bias ? Epilogue::bias_gradient : Epilogue::none};
  std::shared_ptr<MatmulPlan> planned;
  try {
    planned = plan(operands, matmul);
  } catch (const DeviceError&) {
    if (!op.bias) throw;
    matmul.epilogue = Epilogue::none;
    planned = plan(operands, matmul);
  }
  const bool sums = op.bias && matmul.epilogue == Epilogue::none;
  const std::size_t workspace =
      std::max(planned->workspace_bytes(), sums ? column_sums_workspace(d_z[0], d_z[1]) : 0);
  return launch_kernel(
      planned->implementation() + (sums ? " + column_sums" : ""),
      [planned, sums, bias = op.bias, rows = d_z[0], columns = d_z[1], dtype = matmul.dtype,
       ticket = Ticket(operands.context)](const Buffers& b, CudaStream& s) {
        void* d_bias = bias ? b.out[1] : nullptr;
        planned->execute(
            s, {.a = b.in[1], .b = b.in[0], .d = b.out[0], .bias = sums ? nullptr : d_bias},
            b.workspace);
        if (sums)
          column_sums(b.in[1], d_bias, rows, columns, dtype, b.workspace, ticket.word(),
                      s.handle());
      },
      workspace);
}

}  // namespace warpstep::cuda
