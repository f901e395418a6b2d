// Linear layers with few outputs, such as the last one of a classifier, and their adjoints, as
// kernels of our own: a product of a library takes several launches for them. See few.cuda.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// x [rows,inputs], w [pitch,inputs], y [rows,pitch], with inputs and pitch as they are stored, in
// whole vectors of 16 bytes. Of a row of y and of w's rows the first `outputs` count; the rest is
// padding, 0.
struct FewOutputs {
  std::int64_t rows = 0, inputs = 0, outputs = 0, pitch = 0;
};

// Whether there are kernels for it that are faster than a library's product.
bool has_few_outputs(const FewOutputs& layer);

// y = max(0, x w^T + bias), without the maximum unless `relu`, without a bias if it is null. All
// are of `dtype`, here and below; sums are f32.
void few_forward(const FewOutputs& layer, const void* x, const void* w, const void* bias, bool relu,
                 void* y, DType dtype, cudaStream_t stream);

// d_x = d_y w. If `before`, the relu's output that was x, is not null: 0 where `before` is at
// most 0, and d_bias [inputs] is the sum of that d_x over its rows, before rounding.
void few_data_grad(const FewOutputs& layer, const void* d_y, const void* w, const void* before,
                   void* d_x, void* d_bias, DType dtype, cudaStream_t stream);

// d_w = d_y^T x; d_bias [pitch], unless it is null: the sum of d_y over its rows.
void few_weight_grad(const FewOutputs& layer, const void* x, const void* d_y, void* d_w,
                     void* d_bias, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda
