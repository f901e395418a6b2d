// Chooses the implementation of a convolution and of its adjoints by their shapes: few channels,
// depthwise, Winograd, or products over windows. All images are rows of channels (nhwc), all
// weights [out, kernel, kernel, channels]. Figures per layer: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

bool uses_winograd(const Conv& op, const Type& x, const Context& context) {
  return !context.exact_math && suits_winograd(op, x.shape, convolved(op, x.shape), x.dtype);
}

// Only Winograd's kernels compute a convolution with its pool.
void require_pool(const Operands& operands, const Conv& op, const Type& x) {
  if (op.pool && !computes_pooled(op, x, operands.context))
    refuse_fusion(operands, fusion::conv_pool);
}

}  // namespace

bool computes_pooled(const Conv& op, const Type& x, const Context& context) {
  return op.pool && !op.relu && !suits_narrow(op, x.shape) && uses_winograd(op, x, context) &&
         pools_in_winograd(op);
}

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  const Type& x = operands.in(0).type;
  const Shape z = convolved(op, x.shape);
  require_pool(operands, op, x);
  if (suits_narrow(op, x.shape)) return narrow_conv(op, x.shape, z, x.dtype);
  if (suits_depthwise(op, x.shape)) return depthwise_conv(op, x.shape, z, x.dtype);
  return uses_winograd(op, x, operands.context) ? winograd_conv(op, x.shape, z, x.dtype)
                                                : product_conv(op, x.shape, z, x.dtype);
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  if (op.relu) refuse_fusion(operands, fusion::conv_dgrad_relu);
  const Type x{operands.in(0).type.dtype, op.input};
  const Shape z = convolved(op.conv, x.shape);
  require_pool(operands, op.conv, x);
  if (suits_depthwise(op.conv, x.shape)) return depthwise_data_grad(op.conv, x.shape, z, x.dtype);
  return uses_winograd(op.conv, x, operands.context)
             ? winograd_data_grad(op.conv, x.shape, z, x.dtype)
             : product_data_grad(op.conv, x.shape, z, x.dtype);
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Type& x = operands.in(0).type;
  const Shape z = convolved(op.conv, x.shape);
  require_pool(operands, op.conv, x);
  if (suits_narrow(op.conv, x.shape)) return narrow_weight_grad(op.conv, x.shape, z, x.dtype);
  if (suits_depthwise(op.conv, x.shape)) return depthwise_weight_grad(op.conv, x.shape, z, x.dtype);
  return uses_winograd(op.conv, x, operands.context)
             ? winograd_weight_grad(op.conv, x.shape, z, x.dtype)
             : product_weight_grad(op.conv, x.shape, z, x.dtype);
}

}  // namespace warpstep::cpu
