// Launchers of the classification losses' CUDA kernels; engine/graph/ops/loss.h defines the
// arithmetic. `dtype` is that of logits and d_logits, whose rows have `pitch` elements; those after
// `classes` are not read, and written as 0. Log-probabilities are f32, with pitch `log_pitch`.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/pixels.h"
#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep::cuda {

struct RowsShape {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  std::int64_t pitch = 0;      // of logits and d_logits
  std::int64_t log_pitch = 0;  // of log-probabilities and their gradient
};

// How the losses weigh classes; plain with these defaults.
struct Criterion {
  float smoothing = 0;             // of the labels, 0 to 1
  const float* weights = nullptr;  // [classes]; null: all are 1
  bool plain() const { return smoothing == 0 && weights == nullptr; }
};

// One pass: loss, top-1 count and, where d_logits is not null, the gradient of the mean loss, times
// the loss scale of `state` where that is not null. A block has a few rows; the last block to
// finish adds the blocks' sums in a fixed order. `ticket` is one word that is 0 before and after
// the launch.
struct XentBuffers {
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;
  const RowPlan* rows = nullptr;  // null where no row is mixed
  Criterion criterion{};
  float* loss = nullptr;
  std::int32_t* correct = nullptr;
  void* d_logits = nullptr;
  const StepState* state = nullptr;
  void* workspace = nullptr;
  std::uint32_t* ticket = nullptr;
  // Whether a block keeps its row in shared memory while it writes the gradient, if
  // may_keep_rows(): for devices of which a multiprocessor has room for two.
  bool keeps_rows = false;
};
// Long rows of 16 bits, up to 99 KB.
bool may_keep_rows(const RowsShape& shape, DType dtype);
std::size_t softmax_xent_workspace(const RowsShape& shape);
void softmax_xent(const RowsShape& shape, const XentBuffers& buffers, DType dtype,
                  cudaStream_t stream);

// The same, op by op. log_probabilities, d_y: f32. `rows` as above.
void log_softmax(const RowsShape& shape, const void* logits, float* log_probabilities, DType dtype,
                 cudaStream_t stream);
void log_softmax_grad(const RowsShape& shape, const float* d_y, const float* log_probabilities,
                      void* d_logits, DType dtype, cudaStream_t stream);
// x: log-probabilities in f32, or a network's output in any dtype; d_x has the same dtype. One
// block: with smoothing it reads all of x, 0.2 ms for 4096x1000.
void nll(const RowsShape& shape, const void* x, const std::int32_t* labels, const RowPlan* rows,
         const Criterion& criterion, float* loss, DType dtype, cudaStream_t stream);
void nll_grad(const RowsShape& shape, const std::int32_t* labels, const RowPlan* rows,
              const Criterion& criterion, const StepState* state, void* d_x, DType dtype,
              cudaStream_t stream);
void top1(const RowsShape& shape, const void* logits, const std::int32_t* labels,
          std::int32_t* correct, DType dtype, cudaStream_t stream);

// d_loss = 1, or the loss scale of `state` where that is not null.
void loss_grad(const StepState* state, float* d_loss, cudaStream_t stream);

}  // namespace warpstep::cuda
