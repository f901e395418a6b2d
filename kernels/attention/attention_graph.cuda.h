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

}  // namespace warpstep::cuda
