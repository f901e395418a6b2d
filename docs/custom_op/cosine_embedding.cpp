#include "cosine_embedding.h"

#include "cosine_embedding_kernels.h"
#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

using namespace warpstep;

namespace {

void require(std::string_view op, const Types& in, std::size_t inputs) {
  require_inputs(op, in, inputs, inputs);
  if (in[0].shape.rank() != 2 || in[1] != in[0])
    fail<ShapeError>("{} needs two embeddings [N,D] of one type, not {} and {}", op, in[0].text(),
                     in[1].text());
  if (in[2] != Type{DType::i32, {in[0].shape[0]}})
    fail<ShapeError>("{} of {} needs y i32 {}, not {}", op, in[0].text(), in[0].shape[0],
                     in[2].text());
}

// Three products of rows; the adjoint also has two sums of rows.
Cost rows_cost(const Types& in, const Types& out, double flops_per_element, double depth) {
  return {flops_per_element * static_cast<double>(in[0].shape.count()),
          bytes_of(in) + bytes_of(out), depth};
}

CosineRows rows_of(const Graph& graph, const Node& node, double margin) {
  const Type& x = graph.value(node.in[0]).type;
  return {x.shape[0], x.shape[1], margin, x.dtype};
}

}  // namespace

std::string CosineEmbedding::text() const {
  return fmt::format("margin {}", margin_);
}

Types CosineEmbedding::infer(const Types& in) const {
  require(name(), in, 3);
  return {{DType::f32, {}}};
}

Cost CosineEmbedding::cost(const Types& in, const Types& out) const {
  return rows_cost(in, out, 6, static_cast<double>(in[0].shape.count()));
}

void CosineEmbedding::grad(Adjoint& adjoint) const {
  const Custom d{std::make_shared<CosineEmbeddingGrad>(margin_)};
  const std::vector<Tensor> d_x = adjoint.record(
      Phase::data_grad, d, {adjoint.in(0), adjoint.in(1), adjoint.in(2), adjoint.d_out()});
  for (const int i : {0, 1})
    if (adjoint.wants(i)) adjoint.give(i, d_x[idx(i)]);
}

std::unique_ptr<Kernel> CosineEmbedding::bind(std::string_view backend, const Graph& graph,
                                              const Node& node) const {
  const CosineRows shape = rows_of(graph, node, margin_);
  if (backend == "ref") return ref::cosine_embedding(shape);
  if (backend == "cpu") return cpu::cosine_embedding(shape);
  if (backend == "cuda") return cuda::cosine_embedding(shape);
  return nullptr;
}

std::string CosineEmbeddingGrad::text() const {
  return fmt::format("margin {}", margin_);
}

Types CosineEmbeddingGrad::infer(const Types& in) const {
  require(name(), in, 4);
  return {in[0], in[1]};
}

Cost CosineEmbeddingGrad::cost(const Types& in, const Types& out) const {
  return rows_cost(in, out, 12, static_cast<double>(in[0].shape[1]));
}

std::unique_ptr<Kernel> CosineEmbeddingGrad::bind(std::string_view backend, const Graph& graph,
                                                  const Node& node) const {
  const CosineRows shape = rows_of(graph, node, margin_);
  if (backend == "ref") return ref::cosine_embedding_grad(shape);
  if (backend == "cpu") return cpu::cosine_embedding_grad(shape);
  if (backend == "cuda") return cuda::cosine_embedding_grad(shape);
  return nullptr;
}

void cosine_embedding_loss(Tensor x1, Tensor x2, Tensor y, double margin, Where where) {
  const auto op = std::make_shared<CosineEmbedding>(margin);
  set_loss(custom("loss", op, {x1, x2, y}, where));
}
