// cuDNN's requirements on a graph and on a call of its plan; Error names the violated one.
#pragma once

#include <span>

#include "kernels/cuda/dnn.h"

namespace warpstep::cuda::dnn {

void check_graph(const Graph& graph);
// The bindings are those of a graph that check_graph() passed.
void check_call(const Graph& graph, std::span<const Binding> bindings, const void* workspace,
                std::size_t workspace_bytes);

}  // namespace warpstep::cuda::dnn
