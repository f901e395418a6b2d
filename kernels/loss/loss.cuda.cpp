// Binds the losses to their launchers.
#include "kernels/loss/loss.cuda.h"

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

RowsShape rows_shape(const Shape& logical, std::int64_t pitch, std::int64_t log_pitch) {
  return {.rows = logical[0], .classes = logical[1], .pitch = pitch, .log_pitch = log_pitch};
}

// The row plans and the criterion of a loss whose labels are input `labels`: both follow it.
template <class Op>
const RowPlan* plans_of(const Op& op, const Buffers& b, std::size_t labels) {
  return op.mixed ? as<RowPlan>(b.in[labels + 1]) : nullptr;
}
template <class Op>
Criterion criterion_of(const Op& op, const Buffers& b, std::size_t labels) {
  const float* weights = op.weighted ? as<float>(b.in[labels + (op.mixed ? 2 : 1)]) : nullptr;
  return {static_cast<float>(op.smoothing), weights};
}

}  // namespace

std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands& operands) {
  const RowsShape shape =
      rows_shape(operands.in_shape(0), operands.stored_in(0).back(), operands.stored_out().back());
  return launch_kernel("log_softmax",
                       [shape, dtype = operands.dtype_in(0)](const Buffers& b, CudaStream& s) {
                         log_softmax(shape, b.in[0], as<float>(b.out[0]), dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const LogSoftmaxGrad&, const Operands& operands) {
  const RowsShape shape =
      rows_shape(operands.in_shape(0), operands.stored_out().back(), operands.stored_in(1).back());
  return launch_kernel("log_softmax_grad", [shape, dtype = operands.dtype_out()](const Buffers& b,
                                                                                 CudaStream& s) {
    log_softmax_grad(shape, as<float>(b.in[0]), as<float>(b.in[1]), b.out[0], dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Nll& op, const Operands& operands) {
  const RowsShape shape = rows_shape(operands.in_shape(0), 0, operands.stored_in(0).back());
  return launch_kernel("nll",
                       [shape, op, dtype = operands.dtype_in(0)](const Buffers& b, CudaStream& s) {
                         nll(shape, b.in[0], as<std::int32_t>(b.in[1]), plans_of(op, b, 1),
                             criterion_of(op, b, 1), as<float>(b.out[0]), dtype, s.handle());
                       });
}

std::unique_ptr<Kernel> bind(const NllGrad& op, const Operands& operands) {
  const RowsShape shape = rows_shape(operands.out_shape(), 0, operands.stored_out().back());
  return launch_kernel("nll_grad", [shape, op](const Buffers& b, CudaStream& s) {
    const auto* state = op.scaled ? as<StepState>(b.in.back()) : nullptr;
    nll_grad(shape, as<std::int32_t>(b.in[0]), plans_of(op, b, 0), criterion_of(op, b, 0), state,
             b.out[0], op.dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const LossGrad& op, const Operands&) {
  return launch_kernel("loss_grad", [op](const Buffers& b, CudaStream& s) {
    loss_grad(op.scaled ? as<StepState>(b.in[0]) : nullptr, as<float>(b.out[0]), s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Top1&, const Operands& operands) {
  const RowsShape shape = rows_shape(operands.in_shape(0), operands.stored_in(0).back(), 0);
  return launch_kernel("top1", [shape, dtype = operands.dtype_in(0)](const Buffers& b,
                                                                     CudaStream& s) {
    top1(shape, b.in[0], as<std::int32_t>(b.in[1]), as<std::int32_t>(b.out[0]), dtype, s.handle());
  });
}

std::unique_ptr<Kernel> bind(const SoftmaxXent& op, const Operands& operands) {
  const RowsShape shape = rows_shape(operands.in_shape(0), operands.stored_in(0).back(), 0);
  // A multiprocessor of Hopper and of Blackwell's data-centre parts has 228 KB of shared memory.
  const Settings& settings = operands.context.settings;
  const int generation = settings.compute_capability / 10;
  const bool has_room = (generation == 9 || generation == 10) && settings.kernel_capability >= 80;
  const bool is_plain = op.gradient && !op.mixed && op.smoothing == 0 && !op.weighted;
  const bool keeps_rows = has_room && is_plain && may_keep_rows(shape, operands.dtype_in(0));
  return launch_kernel(
      keeps_rows ? "softmax_xent (rows in shared memory)" : "softmax_xent",
      [op, shape, dtype = operands.dtype_in(0), ticket = Ticket(operands.context), keeps_rows](
          const Buffers& b, CudaStream& s) {
        softmax_xent(shape,
                     {.logits = b.in[0],
                      .labels = as<std::int32_t>(b.in[1]),
                      .rows = plans_of(op, b, 1),
                      .criterion = criterion_of(op, b, 1),
                      .loss = as<float>(b.out[0]),
                      .correct = as<std::int32_t>(b.out[1]),
                      .d_logits = op.gradient ? b.out[2] : nullptr,
                      .state = op.scaled ? as<StepState>(b.in.back()) : nullptr,
                      .workspace = b.workspace,
                      .ticket = ticket.word(),
                      .keeps_rows = keeps_rows},
                     dtype, s.handle());
      },
      softmax_xent_workspace(shape));
}

}  // namespace warpstep::cuda
