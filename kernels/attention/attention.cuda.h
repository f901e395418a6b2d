// Launchers of our own attention kernels; engine/graph/ops/attention.h defines the arithmetic.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep::cuda {

inline constexpr std::int64_t most_attention_features = 128;  // of a head

struct AttentionShape {
  std::int64_t sequences = 0, heads = 0, length = 0, features = 0;  // N / T, heads, T, D
  std::int64_t qkv_pitch = 0, o_pitch = 0;                          // elements per row, as stored
  bool causal = true;
  double dropout = 0;
  std::uint32_t layer = 0;

  std::int64_t channels() const { return heads * features; }
  std::int64_t tasks() const { return sequences * heads; }
};

struct AttentionBuffers {
  const void* qkv = nullptr;
  void* o = nullptr;
  float* statistics = nullptr;       // [tasks, T]
  const StepState* state = nullptr;  // with dropout
};
void attention(const AttentionShape& shape, const AttentionBuffers& buffers, DType dtype,
               cudaStream_t stream);

struct AttentionGradBuffers {
  const void *d_o = nullptr, *qkv = nullptr, *o = nullptr;
  const float* statistics = nullptr;
  const StepState* state = nullptr;
  void* d_qkv = nullptr;
  float* means = nullptr;  // workspace: [tasks, T]
};
std::size_t attention_grad_workspace(const AttentionShape& shape);
// Three launches: sums of d_o o; the gradients of queries; those of keys and values. Deterministic.
void attention_grad(const AttentionShape& shape, const AttentionGradBuffers& buffers, DType dtype,
                    cudaStream_t stream);

}  // namespace warpstep::cuda
