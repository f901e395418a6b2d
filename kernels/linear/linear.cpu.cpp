// Linear layers and their adjoints as oneDNN's matrix products: bound by arithmetic, or by reading
// the weights where the batch is small. The sums for d_bias are our own loop. Figures:
// bench/RECORDS.md.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {columns, std::int64_t{1}}};
}

dnnl::memory::desc transposed(std::int64_t rows,
                              std::int64_t columns) {  // of a matrix of columns x rows
  return {{rows, columns}, dnnl::memory::data_type::f32, {std::int64_t{1}, rows}};
}

WARPSTEP_LOOP void add_rows_loop(const float* x, std::int64_t rows, std::int64_t columns,
                                 std::int64_t begin, std::int64_t end, float* sums) {
  for (std::int64_t c = begin; c < end; ++c) sums[c] = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = begin; c < end; ++c) sums[c] += x[r * columns + c];
}
const auto add_rows = vectorized<add_rows_loop>();

// sums[c] = sum over rows of x[r, c], each column in order of the rows.
void column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* sums) {
  constexpr std::int64_t strip = 256;  // columns per task: their sums stay in the first-level cache
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
  for (std::int64_t begin = 0; begin < columns; begin += strip)
    add_rows(x, rows, columns, begin, std::min(columns, begin + strip), sums);
}

// d_weight by oneDNN, then d_bias.
class WeightGrad final : public Kernel {
 public:
  WeightGrad(std::unique_ptr<Kernel> matmul, std::int64_t rows, std::int64_t outs)
      : matmul_(std::move(matmul)), rows_(rows), outs_(outs) {}
  std::size_t workspace_bytes() const override { return matmul_->workspace_bytes(); }
  std::string implementation() const override {
    return matmul_->implementation() + " + column sums";
  }
  void enqueue(Stream& stream, const Buffers& b) const override {
    matmul_->enqueue(stream, b);
    column_sums(as<float>(b.in[1]), rows_, outs_, as<float>(b.out[1]));
  }

 private:
  std::unique_ptr<Kernel> matmul_;
  std::int64_t rows_, outs_;
};

}  // namespace

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  if (op.mask) refuse_fusion(operands, fusion::linear_dgrad_relu);
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1];
  const auto x = matrix(n, k), weight = transposed(k, op.out), bias = matrix(1, op.out),
             y = matrix(n, op.out);
  std::vector<Argument> arguments{{DNNL_ARG_SRC, x, false, 0},
                                  {DNNL_ARG_WEIGHTS, weight, false, 1},
                                  {DNNL_ARG_DST, y, true, 0}};
  if (op.bias) arguments.push_back({DNNL_ARG_BIAS, bias, false, 2});
  const auto& engine = operands.context.engine;
  return primitive_kernel(
      engine,
      plan_matmul(engine, x, weight, op.bias ? std::optional(bias) : std::nullopt, y, op.relu),
      arguments);
}

std::unique_ptr<Kernel> bind(const LinearDataGrad& op, const Operands& operands) {
  if (op.relu) refuse_fusion(operands, fusion::linear_dgrad_relu);
  const std::int64_t n = operands.in_shape(0)[0], outs = operands.in_shape(0)[1],
                     k = operands.in_shape(1)[1];
  const auto d_z = matrix(n, outs), weight = matrix(outs, k), d_x = matrix(n, k);
  const auto& engine = operands.context.engine;
  return primitive_kernel(engine, plan_matmul(engine, d_z, weight, std::nullopt, d_x, false),
                          {{DNNL_ARG_SRC, d_z, false, 0},
                           {DNNL_ARG_WEIGHTS, weight, false, 1},
                           {DNNL_ARG_DST, d_x, true, 0}});
}

std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const std::int64_t n = operands.in_shape(0)[0], k = operands.in_shape(0)[1],
                     outs = operands.in_shape(1)[1];
  const auto d_z = transposed(outs, n), x = matrix(n, k), d_weight = matrix(outs, k);
  const auto& engine = operands.context.engine;
  auto matmul = primitive_kernel(engine, plan_matmul(engine, d_z, x, std::nullopt, d_weight, false),
                                 {{DNNL_ARG_SRC, d_z, false, 1},
                                  {DNNL_ARG_WEIGHTS, x, false, 0},
                                  {DNNL_ARG_DST, d_weight, true, 0}});
  if (!op.bias) return matmul;
  return std::make_unique<WeightGrad>(std::move(matmul), n, outs);
}

}  // namespace warpstep::cpu
