// Chooses the implementation of a convolution and of its adjoints by their shapes: few channels,
// depthwise, Winograd, scattered, or products over windows. All images are rows of channels (nhwc),
// all weights [out, kernel, kernel, channels]. Figures per layer: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

bool uses_winograd(const Conv& op, const Type& x, const Context& context,
                   bool weight_gradient = false) {
  // Both sides of a pool's index are Winograd's or neither is.
  return !context.exact_math &&
         suits_winograd(op, x.shape, convolved(op, x.shape), x.dtype, weight_gradient && !op.pool);
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

namespace {

std::unique_ptr<Kernel> other_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype) {
  return suits_scattered(op, {dtype, x}) ? scattered_conv(op, x, z) : product_conv(op, x, z, dtype);
}

std::unique_ptr<Kernel> other_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                        DType dtype) {
  return suits_scattered_grad(op, {dtype, x}) ? scattered_data_grad(op, x, z)
                                              : product_data_grad(op, x, z, dtype);
}

// What an op computes of its convolution.
struct Form {
  std::unique_ptr<Kernel> (*narrow)(const Conv&, const Shape&, const Shape&, DType);  // or null
  std::unique_ptr<Kernel> (*depthwise)(const Conv&, const Shape&, const Shape&, DType);
  std::unique_ptr<Kernel> (*winograd)(const Conv&, const Shape&, const Shape&, DType);
  std::unique_ptr<Kernel> (*other)(const Conv&, const Shape&, const Shape&, DType);
  bool weight_gradient = false;
};

std::unique_ptr<Kernel> kernel_of(const Form& form, const Conv& op, const Type& x,
                                  const Context& context) {
  const Shape z = convolved(op, x.shape);
  if (form.narrow && suits_narrow(op, x.shape)) return form.narrow(op, x.shape, z, x.dtype);
  // Before the others: it alone computes a pool, and 8 channels and outputs are a group of 8, too.
  if (uses_winograd(op, x, context, form.weight_gradient))
    return form.winograd(op, x.shape, z, x.dtype);
  if (suits_depthwise(op, x.shape, x.dtype)) return form.depthwise(op, x.shape, z, x.dtype);
  // Zeros would spread what is not finite from one group to another.
  if (const std::int64_t groups = joined_groups(op, x.shape); groups > 1 && !context.exact_math) {
    Conv joined = op;
    joined.groups /= groups;
    return joined_kernel(op, x.shape, x.dtype, form.weight_gradient, groups,
                         kernel_of(form, joined, x, context));
  }
  return form.other(op, x.shape, z, x.dtype);
}

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  const Type& x = operands.in(0).type;
  require_pool(operands, op, x);
  return kernel_of({narrow_conv, depthwise_conv, winograd_conv, other_conv}, op, x,
                   operands.context);
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  if (op.relu) refuse_fusion(operands, fusion::conv_dgrad_relu);
  const Type x{operands.in(0).type.dtype, op.input};
  require_pool(operands, op.conv, x);
  return kernel_of({nullptr, depthwise_data_grad, winograd_data_grad, other_data_grad}, op.conv, x,
                   operands.context);
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Type& x = operands.in(0).type;
  require_pool(operands, op.conv, x);
  return kernel_of(
      {narrow_weight_grad, depthwise_weight_grad, winograd_weight_grad, product_weight_grad, true},
      op.conv, x, operands.context);
}

}  // namespace warpstep::cpu
