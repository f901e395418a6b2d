#include "kernels/update/update.cuda.h"

#include "engine/store.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

// Elements of a section of the store, padding included.
// Inputs as Update has them; for UpdateAll, whose parameters follow each other in every section,
// the first parameter's stand for all.
std::unique_ptr<Kernel> bind_update(const Update& op, const Operands& operands,
                                    std::int64_t count) {
  return launch_kernel(std::string(name(op.optimizer.kind)),
                       [op, count, rule = update_rule(op.optimizer), dtype = operands.dtype_in(1),
                        copies = operands.dtype_in(op.copy ? static_cast<int>(op.operands()) - 1
                                                           : 1)](const Buffers& b, CudaStream& s) {
                         const int moments = op.optimizer.moments();
                         update(rule,
                                {.parameters = as<float>(b.in[0]),
                                 .gradients = b.in[1],
                                 .state = as<StepState>(b.in[2]),
                                 .first = moments > 0 ? as<float>(b.in[3]) : nullptr,
                                 .second = moments > 1 ? as<float>(b.in[4]) : nullptr,
                                 .copy = op.copy ? b.in[op.operands() - 1] : nullptr},
                                count, dtype, copies, s.handle());
                       });
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return launch_kernel("clock", [op](const Buffers& b, CudaStream& s) {
    clock(op.schedule, op.beta1, op.beta2, op.scaling, op.accumulate, as<StepState>(b.in[0]),
          s.handle());
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  return bind_update(op, operands, operands.stored_in(0).count());
}

// The padding between parameters is zero, as are its gradient and moments, which keeps it zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  return bind_update({op.optimizer, op.copy}, operands, section_elements(operands.graph));
}

std::unique_ptr<Kernel> bind(const Report&, const Operands&) {
  return launch_kernel("report", [](const Buffers& b, CudaStream& s) {
    const auto* correct = b.in.size() == 4 ? as<std::int32_t>(b.in[1]) : nullptr;
    report(as<float>(b.in[0]), correct, as<StepState>(b.in[b.in.size() - 2]),
           as<StepReport>(b.in.back()), s.handle());
  });
}

}  // namespace warpstep::cuda
