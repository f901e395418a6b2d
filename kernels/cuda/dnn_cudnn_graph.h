// A dnn::Graph in cuDNN's terms.
#pragma once

#include <vector>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_descriptor.h"

namespace warpstep::cuda::dnn {

// Owns the descriptors of a graph: operations refer to tensors, and the graph to operations.
class OperationGraph {
 public:
  // Throws DeviceError when cuDNN refuses an operation whatever the engine: extents that do not
  // fit each other, types that it does not know.
  explicit OperationGraph(const Graph& graph);

  const Descriptor& descriptor() const { return graph_; }

 private:
  struct NamedTensor {
    std::int64_t uid;
    Descriptor descriptor;
  };

  const Descriptor& tensor(std::int64_t uid) const;
  void add(const Convolution& conv);
  void add(const Pointwise& pointwise);
  void add(const ChannelSums& sums);
  void add(const NormGradSums& sums);

  std::vector<NamedTensor> tensors_;
  std::vector<Descriptor> parameters_;  // of operations: padding and strides, kinds of arithmetic
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

}  // namespace warpstep::cuda::dnn
