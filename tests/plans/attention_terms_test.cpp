// The operations that stand for an attention in cuDNN's graphs, computed one by one in double: they
// give softmax(q k^T / sqrt(D)) v and, by central differences, its gradients. cuDNN only recognises
// their pattern.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/core/error.h"
#include "kernels/attention/attention_graph.cuda.h"
#include "kernels/cuda/dnn_cudnn_attention.h"

namespace warpstep::cuda::dnn {
namespace {

using Numbers = std::vector<double>;

// Computes a graph's operations on the memory of our tensors.
class Computation {
 public:
  Computation(const Graph& graph, std::map<std::int64_t, Numbers>& memory) {
    const AttentionTerms terms = attention_terms(graph);
    for (const Tensor& t : graph.tensors)
      tensors_[t.uid] = {t.dims, t.strides, memory.at(t.uid).data()};
    for (const TensorTerms& t : terms.tensors) {
      std::int64_t last = 0;
      for (std::size_t axis = 0; axis < 4; ++axis) last += (t.dims[axis] - 1) * t.strides[axis];
      Numbers& own = own_[t.uid];
      if (t.is_virtual || t.by_value) own.resize(idx(last + 1));
      tensors_[t.uid] = {t.dims, t.strides, own.data()};
    }
    for (const BoundTensor& part : bound_parts(graph, *attention_of(graph))) {
      if (part.of == 0)
        own_.at(part.uid)[0] = static_cast<double>(part.value);
      else
        tensors_.at(part.uid).at =
            memory.at(part.of).data() + part.offset / size_bytes(graph.tensor(part.of).dtype);
    }
    for (const OperationTerms& operation : terms.operations)
      std::visit([this](const auto& op) { compute(op); }, operation);
  }

 private:
  struct View {
    Extents dims, strides;
    double* at;
    double& operator[](const Extents& where) const {  // extents of 1 are broadcast
      std::int64_t offset = 0;
      for (std::size_t axis = 0; axis < 4; ++axis)
        offset += dims[axis] == 1 ? 0 : where[axis] * strides[axis];
      return at[offset];
    }
  };
  template <class Visit>
  static void each(const Extents& dims, Visit visit) {
    for (std::int64_t i = 0; i < dims[0] * dims[1] * dims[2] * dims[3]; ++i)
      visit(Extents{i / dims[3] / dims[2] / dims[1], i / dims[3] / dims[2] % dims[1],
                    i / dims[3] % dims[2], i % dims[3]});
  }

  void compute(const MatmulTerms& op) {
    const View &a = tensors_.at(op.a), &b = tensors_.at(op.b), &c = tensors_.at(op.c);
    ASSERT_EQ(a.dims[3], b.dims[2]);
    ASSERT_EQ(c.dims, (Extents{a.dims[0], a.dims[1], a.dims[2], b.dims[3]}));
    each(c.dims, [&](const Extents& at) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.dims[3]; ++k)
        sum += a[{at[0], at[1], at[2], k}] * b[{at[0], at[1], k, at[3]}];
      c[at] = sum;
    });
  }

  void compute(const PointwiseTerms& op) {
    const View &x = tensors_.at(op.x), &y = tensors_.at(op.y);
    each(y.dims, [&](const Extents& at) {
      const double b = op.b ? tensors_.at(*op.b)[at] : 0;
      switch (op.mode) {
        case CUDNN_POINTWISE_ADD: y[at] = x[at] + b; break;
        case CUDNN_POINTWISE_SUB: y[at] = x[at] - b; break;
        case CUDNN_POINTWISE_MUL: y[at] = x[at] * b; break;
        case CUDNN_POINTWISE_DIV: y[at] = x[at] / b; break;
        case CUDNN_POINTWISE_EXP: y[at] = std::exp(x[at]); break;
        case CUDNN_POINTWISE_LOG: y[at] = std::log(x[at]); break;
        case CUDNN_POINTWISE_IDENTITY: y[at] = x[at]; break;
        case CUDNN_POINTWISE_GEN_INDEX: y[at] = static_cast<double>(at[idx(*op.axis)]); break;
        case CUDNN_POINTWISE_CMP_GE: y[at] = x[at] >= b ? 1 : 0; break;
        case CUDNN_POINTWISE_BINARY_SELECT:
          y[at] = tensors_.at(*op.condition)[at] != 0 ? x[at] : b;
          break;
        default: ADD_FAILURE() << "mode " << op.mode;
      }
    });
  }

  void compute(const ReductionTerms& op) {
    const View &x = tensors_.at(op.x), &y = tensors_.at(op.y);
    const bool adds = op.mode == CUDNN_REDUCE_TENSOR_ADD;
    each(y.dims, [&](const Extents& at) { y[at] = adds ? 0 : -HUGE_VAL; });
    each(x.dims, [&](const Extents& at) { y[at] = adds ? y[at] + x[at] : std::max(y[at], x[at]); });
  }

  void compute(const ReshapeTerms& op) { tensors_.at(op.y).at = tensors_.at(op.x).at; }

  std::map<std::int64_t, View> tensors_;
  std::map<std::int64_t, Numbers> own_;  // of virtual tensors and numbers
};

// Two sequences of 5 positions, 3 heads of 8.
struct Example {
  AttentionShape shape{
      .sequences = 2, .heads = 3, .length = 5, .features = 8, .qkv_pitch = 72, .o_pitch = 24};
  std::map<std::int64_t, Numbers> memory;

  explicit Example(bool causal) {
    shape.causal = causal;
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto rows = idx(shape.sequences * shape.length);
    for (const auto& [uid, row] : {std::pair{AttentionUids::qkv, 72},
                                   {AttentionUids::o, 24},
                                   {AttentionUids::d_o, 24},
                                   {AttentionUids::d_qkv, 72},
                                   {AttentionUids::statistics, 3},
                                   {AttentionUids::d_q_sums, 24}})
      memory[uid].resize(rows * idx(row), std::nan(""));
    for (const std::int64_t uid : {AttentionUids::qkv, AttentionUids::d_o})
      for (double& number : memory[uid]) number = normal(random);
  }

  // o and statistics as the definition of the op says.
  std::pair<Numbers, Numbers> defined() const {
    const Numbers& qkv = memory.at(AttentionUids::qkv);
    Numbers o(memory.at(AttentionUids::o).size()), logs;
    for (std::int64_t n = 0; n < shape.sequences; ++n)
      for (std::int64_t h = 0; h < shape.heads; ++h)
        for (std::int64_t i = 0; i < shape.length; ++i) {
          const auto at = [&](std::int64_t position, std::int64_t part, std::int64_t d) {
            return qkv[idx((n * shape.length + position) * 72 + part * 24 + h * 8 + d)];
          };
          Numbers p;
          double sum = 0;
          for (std::int64_t j = 0; j < (shape.causal ? i + 1 : shape.length); ++j) {
            double score = 0;
            for (std::int64_t d = 0; d < 8; ++d) score += at(i, 0, d) * at(j, 1, d);
            sum += p.emplace_back(std::exp(score / std::sqrt(8.0)));
          }
          logs.push_back(std::log(sum));
          for (std::size_t j = 0; j < p.size(); ++j)
            for (std::int64_t d = 0; d < 8; ++d)
              o[idx((n * shape.length + i) * 24 + h * 8 + d)] +=
                  p[j] / sum * at(static_cast<std::int64_t>(j), 2, d);
        }
    return {o, logs};
  }

  double loss() const {  // the sum of d_o o
    const Numbers o = defined().first;
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * memory.at(AttentionUids::d_o)[i];
    return sum;
  }
};

void expect_near(const Numbers& found, const Numbers& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], tolerance) << i;
}

class AttentionInTerms : public testing::TestWithParam<bool> {};

TEST_P(AttentionInTerms, IsWhatTheOpDefines) {
  Example example(GetParam());
  const auto [o, logs] = example.defined();
  Computation(attention_graph("forward", example.shape, DType::bf16), example.memory);
  // The scale is a number of f32.
  expect_near(example.memory[AttentionUids::o], o, 1e-6);
  expect_near(example.memory[AttentionUids::statistics], logs, 1e-6);
}

TEST_P(AttentionInTerms, HasTheGradientsOfDifferences) {
  Example example(GetParam());
  Numbers gradients;
  Numbers& qkv = example.memory[AttentionUids::qkv];
  for (double& x : qkv) {
    const double kept = x, step = 1e-4;
    x = kept + step;
    const double above = example.loss();
    x = kept - step;
    gradients.push_back((above - example.loss()) / (2 * step));
    x = kept;
  }
  std::tie(example.memory[AttentionUids::o], example.memory[AttentionUids::statistics]) =
      example.defined();
  for (const bool deterministic : {false, true}) {
    Numbers& d_qkv = example.memory[AttentionUids::d_qkv];
    d_qkv.assign(d_qkv.size(), std::nan(""));
    Computation(attention_gradient_graph("adjoint", example.shape, DType::f16, deterministic),
                example.memory);
    expect_near(d_qkv, gradients, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(, AttentionInTerms, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "causal" : "all"; });

}  // namespace
}  // namespace warpstep::cuda::dnn
