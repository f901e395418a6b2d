// The cosine-embedding loss, torch.nn.CosineEmbeddingLoss, as an op outside Warpstep.
#pragma once

#include "engine/graph/layers.h"

// The kernels' intermediate values for two embeddings: s = |x|^2 + 1e-12 of each, as in PyTorch's
// source (aten/src/ATen/native/Loss.cpp), and cos = x1 x2 / sqrt(s1 s2).
inline constexpr double square_epsilon = 1e-12;

// x1, x2 [N,D], y i32 [N] -> loss f32 [], the mean over rows of 1 - cos where y is 1, max(0, cos -
// margin) where y is -1, and 0 elsewhere.
class CosineEmbedding final : public warpstep::CustomOp {
 public:
  explicit CosineEmbedding(double margin) : margin_(margin) {}
  std::string_view name() const override { return "cosine_embedding"; }
  std::string text() const override;
  warpstep::Types infer(const warpstep::Types& in) const override;
  warpstep::Cost cost(const warpstep::Types& in, const warpstep::Types& out) const override;
  void grad(warpstep::Adjoint& adjoint) const override;
  std::unique_ptr<warpstep::Kernel> bind(std::string_view backend, const warpstep::Graph& graph,
                                         const warpstep::Node& node) const override;

 private:
  double margin_;
};

// x1, x2, y, d_loss f32 [] -> d_x1, d_x2.
class CosineEmbeddingGrad final : public warpstep::CustomOp {
 public:
  explicit CosineEmbeddingGrad(double margin) : margin_(margin) {}
  std::string_view name() const override { return "cosine_embedding.dgrad"; }
  std::string text() const override;
  warpstep::Types infer(const warpstep::Types& in) const override;
  warpstep::Cost cost(const warpstep::Types& in, const warpstep::Types& out) const override;
  std::unique_ptr<warpstep::Kernel> bind(std::string_view backend, const warpstep::Graph& graph,
                                         const warpstep::Node& node) const override;

 private:
  double margin_;
};

// Makes the loss between two branches the graph's loss.
void cosine_embedding_loss(warpstep::Tensor x1, warpstep::Tensor x2, warpstep::Tensor y,
                           double margin, warpstep::Where where = warpstep::Where::current());
