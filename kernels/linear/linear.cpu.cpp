// Linear layers and their adjoints as our own matrix products: bound by arithmetic, or by reading
// the weights where the batch is small. Figures: bench/RECORDS.md.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {
namespace {

// The product of in[a] and in[b], with the bias in[2] if any.
std::unique_ptr<Kernel> product_kernel(std::shared_ptr<const Product> product, int a, int b,
                                       bool bias) {
  return host_kernel(
      Product::implementation(),
      [=](const Buffers& buffers) {
        product->run(as<float>(buffers.in[idx(a)]), as<float>(buffers.in[idx(b)]),
                     bias ? as<float>(buffers.in[2]) : nullptr, as<float>(buffers.out[0]),
                     buffers.workspace);
      },
      product->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  if (op.mask) refuse_fusion(operands, fusion::linear_dgrad_relu);
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1];
  return product_kernel(
      std::make_shared<Product>(Product::Shape{n, op.out, k}, strided({k, 1}), strided({k, 1}),
                                PixelGrid::matrix(op.out), op.relu),
      0, 1, op.bias);
}

std::unique_ptr<Kernel> bind(const LinearDataGrad& op, const Operands& operands) {
  if (op.relu) refuse_fusion(operands, fusion::linear_dgrad_relu);
  const std::int64_t n = operands.in_shape(0)[0], outs = operands.in_shape(0)[1],
                     k = operands.in_shape(1)[1];
  return product_kernel(std::make_shared<Product>(Product::Shape{n, k, outs}, strided({outs, 1}),
                                                  strided({1, k}), PixelGrid::matrix(k)),
                        0, 1, false);
}

std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1],
                     outs = operands.in_shape(1)[1];
  auto product = std::make_shared<Product>(Product::Shape{outs, k, n}, strided({1, outs}),
                                           strided({1, k}), PixelGrid::matrix(k));
  if (!op.bias) return product_kernel(product, 1, 0, false);
  return host_kernel(
      Product::implementation() + " + column sums",
      [=](const Buffers& b) {
        product->run(as<float>(b.in[1]), as<float>(b.in[0]), nullptr, as<float>(b.out[0]),
                     b.workspace);
        column_sums(as<float>(b.in[1]), n, outs, as<float>(b.out[1]), b.workspace);
      },
      std::max(product->workspace_bytes(), column_sums_workspace(n, outs)));
}

}  // namespace warpstep::cpu
