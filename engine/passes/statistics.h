// Statistics per block of the model: norms of gradients, parameters and updates, and moments of
// activations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"

namespace warpstep {

// The block that a parameter or a layer belongs to by its name: up to its first number, as
// "h.3" of "h.3.attn.c_attn.weight" and "layer1.0" of "layer1.0.bn1", else its first part, as
// "conv1" of "conv1.weight".
std::string_view block_name(std::string_view name);

// The blocks of a model as it was recorded, in its order, each with its output: the last value
// that the forward half computes of it. An addition that joins two blocks belongs to the later one.
std::vector<Block> find_blocks(const Graph& model);

// Appends the calls that measure the blocks: each output's right after it is computed, parameters'
// before the first update. Takes a training step to which nothing but schedule() will be done:
// `blocks` changes no other call. A block's output that fusions left nowhere is not measured.
Graph add_statistics(Graph graph, std::vector<Block> blocks, const Optimizer& optimizer);

}  // namespace warpstep
