// An attention as a graph for cuDNN.
#pragma once

#include <string>

#include "kernels/attention/attention.cuda.h"
#include "kernels/cuda/dnn.h"

namespace warpstep::cuda {

struct AttentionUids {  // of the graphs' tensors
  static constexpr std::int64_t qkv = 1, o = 2, statistics = 3, d_o = 4, d_qkv = 5, d_q_sums = 6;
};

// Without dropout, which cuDNN draws in another way than the engine.
dnn::Graph attention_graph(std::string name, const AttentionShape& shape, DType dtype);
// `deterministic`: without sums of the queries' gradients in memory, to which blocks add in any
// order.
dnn::Graph attention_gradient_graph(std::string name, const AttentionShape& shape, DType dtype,
                                    bool deterministic);

// How many sequences of a batch the adjoint computes at once, so that what it keeps on the device,
// the sums included, is within the workspace cap; 0 if one sequence is too many. The last piece may
// have less. Tensors of all pieces begin at multiples of 16 bytes.
std::int64_t attention_piece(const AttentionShape& shape, DType dtype, const Settings& settings);

}  // namespace warpstep::cuda
