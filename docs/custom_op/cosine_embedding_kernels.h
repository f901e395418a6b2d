// The kernels, one file per backend: NAME.ref.cpp, NAME.cpu.cpp, NAME.cuda.cpp.
#pragma once

#include "kernels/kernel.h"

struct CosineRows {
  std::int64_t rows = 0, columns = 0;
  double margin = 0;
  warpstep::DType dtype{};  // of the embeddings; 16 bits only on CUDA
};

namespace ref {
std::unique_ptr<warpstep::Kernel> cosine_embedding(const CosineRows& shape);
std::unique_ptr<warpstep::Kernel> cosine_embedding_grad(const CosineRows& shape);
}  // namespace ref
namespace cpu {
std::unique_ptr<warpstep::Kernel> cosine_embedding(const CosineRows& shape);
std::unique_ptr<warpstep::Kernel> cosine_embedding_grad(const CosineRows& shape);
}  // namespace cpu
// Null in a build without CUDA: cosine_embedding.no_cuda.cpp.
namespace cuda {
std::unique_ptr<warpstep::Kernel> cosine_embedding(const CosineRows& shape);
std::unique_ptr<warpstep::Kernel> cosine_embedding_grad(const CosineRows& shape);
}  // namespace cuda
