// The kernels that the CUDA backend calls; they enqueue the launchers of cosine_embedding.cuda.cu.
#include "cosine_embedding.cuda.h"

#include "cosine_embedding_kernels.h"
#include "kernels/cuda/launch_kernel.h"

using namespace warpstep;

namespace cuda {
namespace {

CosineShape shape_of(const CosineRows& rows) {
  return {rows.rows, rows.columns, static_cast<float>(rows.margin), rows.dtype};
}

}  // namespace

std::unique_ptr<Kernel> cosine_embedding(const CosineRows& rows) {
  return warpstep::cuda::launch_kernel(
      "cosine_embedding",
      [shape = shape_of(rows)](const Buffers& b, warpstep::cuda::CudaStream& s) {
        cosine_embedding(shape, b.in[0], b.in[1], as<std::int32_t>(b.in[2]), as<float>(b.out[0]),
                         as<float>(b.workspace), s.handle());
      },
      idx(rows.rows) * sizeof(float));
}

std::unique_ptr<Kernel> cosine_embedding_grad(const CosineRows& rows) {
  return warpstep::cuda::launch_kernel(
      "cosine_embedding_grad",
      [shape = shape_of(rows)](const Buffers& b, warpstep::cuda::CudaStream& s) {
        cosine_embedding_grad(shape, b.in[0], b.in[1], as<std::int32_t>(b.in[2]),
                              as<float>(b.in[3]), b.out[0], b.out[1], s.handle());
      });
}

}  // namespace cuda
