// An attention in cuDNN's terms, as values: which tensors and operations its graph has, and what a
// plan of it is bound to. dnn_cudnn_graph.cpp makes descriptors of them.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/dnn.h"

namespace warpstep::cuda::dnn {

// A tensor of cuDNN's graph. `by_value`: a number on the host.
struct TensorTerms {
  std::int64_t uid;
  cudnnDataType_t type;
  Extents dims, strides;
  bool is_virtual = false, by_value = false;
};

// Operations of cuDNN's graph, which name tensors by uid.
struct MatmulTerms {  // c = a b, of the matrices in the last two axes
  std::int64_t a, b, c;
};
struct PointwiseTerms {  // of `condition` where it is given: x where it is true, else b
  cudnnPointwiseMode_t mode;
  std::int64_t x;
  std::optional<std::int64_t> b{};
  std::int64_t y;
  std::optional<std::int64_t> condition{}, axis{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;  // of the arithmetic
};
struct ReductionTerms {  // over the axes where y has the extent 1
  cudnnReduceTensorOp_t mode;
  std::int64_t x, y;
};
struct ReshapeTerms {  // y is x's memory with y's dims and strides
  std::int64_t x, y;
};
using OperationTerms = std::variant<MatmulTerms, PointwiseTerms, ReductionTerms, ReshapeTerms>;

// Without the tensors of our graph, which cuDNN's also has.
struct AttentionTerms {
  std::vector<TensorTerms> tensors;
  std::vector<OperationTerms> operations;
};
AttentionTerms attention_terms(const Graph& graph);

// What a plan of the graph is given addresses for, under the uids of cuDNN's graph: a tensor of
// ours, or a part of it that begins `offset` bytes later, or a number on the host (`of` is 0).
struct BoundTensor {
  std::int64_t uid = 0, of = 0;
  std::size_t offset = 0;
  float value = 0;
};
// Bindings of q, k, v and their gradients inside qkv and d_qkv, and of the numbers on the host.
std::vector<BoundTensor> bound_parts(const Graph& graph, const Attention& attention);

// Why no plan of an attention may be used, whatever cuDNN's heuristics propose; empty if there is
// no reason. These are the limits that NVIDIA's cudnn-frontend keeps to (sdpa_support_surface.h):
// at most 128 features per head, on Hopper 256; no sequences of one position; and versions
// before 9.16 are wrong for sequences that are no whole tiles, or need cleared sums.
std::string attention_objection(const Graph& graph, const Settings& settings);

// Stands for the plan of an attention where there is no driver, without which cuDNN offers no
// engine for it even for an assumed device. Only its name and its workspace can be asked for.
std::unique_ptr<Plan> attention_planned_later(const Graph& graph, const Settings& settings);

}  // namespace warpstep::cuda::dnn
