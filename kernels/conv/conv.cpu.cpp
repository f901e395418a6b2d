// Chooses the implementation of a convolution and of its adjoints by their shapes: few channels,
// Winograd, or products over windows, which compute all of bf16: there they are faster. All images
// are rows of channels (nhwc), all weights [out, kernel, kernel, channels]. Figures per layer:
// bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

bool uses_winograd(const Operands& operands, const Conv& op, const Shape& x, const Shape& z) {
  return !operands.context.exact_math && suits_winograd(op, x, z);
}

bool is_bf16(const Operands& operands) {
  return operands.in(0).type.dtype == DType::bf16;
}

// A pool behind the convolution is Winograd's only.
void require_pool(const Operands& operands, const Conv& op, const Shape& x) {
  if (op.pool && (is_bf16(operands) || !computes_pooled(op, x, operands.context)))
    refuse_fusion(operands, fusion::conv_pool);
}

}  // namespace

bool computes_pooled(const Conv& op, const Shape& x, const Context& context) {
  return op.pool && !op.relu && !context.exact_math && !suits_narrow(op, x) &&
         suits_winograd(op, x, convolved(op, x)) && pools_in_winograd(op);
}

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  const Shape &x = operands.in_shape(0), z = convolved(op, x);
  require_pool(operands, op, x);
  if (is_bf16(operands)) return product_conv(op, x, z, DType::bf16);
  if (suits_narrow(op, x)) return narrow_conv(op, x, z);
  return uses_winograd(operands, op, x, z) ? winograd_conv(op, x, z)
                                           : product_conv(op, x, z, DType::f32);
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  const Shape &x = op.input, z = convolved(op.conv, x);
  require_pool(operands, op.conv, x);
  if (is_bf16(operands)) return product_data_grad(op.conv, x, z, DType::bf16);
  return uses_winograd(operands, op.conv, x, z) ? winograd_data_grad(op.conv, x, z)
                                                : product_data_grad(op.conv, x, z, DType::f32);
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Shape &x = operands.in_shape(0), z = convolved(op.conv, x);
  require_pool(operands, op.conv, x);
  if (is_bf16(operands)) return product_weight_grad(op.conv, x, z, DType::bf16);
  if (suits_narrow(op.conv, x)) return narrow_weight_grad(op.conv, x, z);
  return uses_winograd(operands, op.conv, x, z) ? winograd_weight_grad(op.conv, x, z)
                                                : product_weight_grad(op.conv, x, z, DType::f32);
}

}  // namespace warpstep::cpu
