// Linear layers and their adjoints as our own matrix products: bound by arithmetic, or by reading
// the weights where the batch is small. Figures: bench/RECORDS.md.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_bf16.h"

namespace warpstep::cpu {
namespace {

// The product of in[a] and in[b], with the bias in[2] if any.
struct Factors {
  int a, b;
  bool bias = false, relu = false;
};
template <class T>
std::unique_ptr<Kernel> product_kernel(ProductShape shape, Strides a, Strides b, Factors factors) {
  auto product =
      std::make_shared<const ProductOf<T>>(shape, strided(std::move(a)), strided(std::move(b)),
                                           PixelGrid::matrix(shape.n), factors.relu);
  return host_kernel(
      ProductOf<T>::implementation(),
      [product, factors](const Buffers& buffers) {
        product->run(as<T>(buffers.in[idx(factors.a)]), as<T>(buffers.in[idx(factors.b)]),
                     factors.bias ? as<T>(buffers.in[2]) : nullptr, as<T>(buffers.out[0]),
                     buffers.workspace);
      },
      product->workspace_bytes());
}

template <class T>
std::unique_ptr<Kernel> weight_grad_with_bias(std::int64_t n, std::int64_t k, std::int64_t outs) {
  auto product = std::make_shared<const ProductOf<T>>(ProductShape{outs, k, n}, strided({1, outs}),
                                                      strided({1, k}), PixelGrid::matrix(k));
  return host_kernel(
      ProductOf<T>::implementation() + " + column sums",
      [=](const Buffers& b) {
        product->run(as<T>(b.in[1]), as<T>(b.in[0]), nullptr, as<T>(b.out[0]), b.workspace);
        column_sums(as<T>(b.in[1]), n, outs, as<T>(b.out[1]), b.workspace);
      },
      std::max(product->workspace_bytes(), column_sums_workspace(n, outs)));
}

}  // namespace

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  if (op.mask) refuse_fusion(operands, fusion::linear_dgrad_relu);
  if (op.gelu) refuse_fusion(operands, fusion::linear_gelu);
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1];
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    return product_kernel<T>({n, op.out, k}, {k, 1}, {k, 1}, {0, 1, op.bias, op.relu});
  });
}

std::unique_ptr<Kernel> bind(const LinearDataGrad& op, const Operands& operands) {
  if (op.relu) refuse_fusion(operands, fusion::linear_dgrad_relu);
  if (op.gelu) refuse_fusion(operands, fusion::linear_dgrad_gelu);
  const std::int64_t n = operands.in_shape(0)[0], outs = operands.in_shape(0)[1],
                     k = operands.in_shape(1)[1];
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    return product_kernel<T>({n, k, outs}, {outs, 1}, {1, k}, {0, 1});
  });
}

std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1],
                     outs = operands.in_shape(1)[1];
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    return op.bias ? weight_grad_with_bias<T>(n, k, outs)
                   : product_kernel<T>({outs, k, n}, {1, outs}, {1, k}, {1, 0});
  });
}

}  // namespace warpstep::cpu
