// Which images of a step's forward half the CPU backend stores in blocks of channels.
#pragma once

#include <map>
#include <vector>

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

using Users = std::vector<std::vector<const Node*>>;  // of each value
Users users_of(const Graph& graph, const std::vector<Node>& nodes);

// Whether images go through the op in the layout of one of them, and the input that is this one: a
// relu's adjoint has y, in whose layout the layer's adjoint wants it, and a norm's has x.
bool keeps_layout(const AnyOp& op);
int leader(const Node& node);

bool fills_blocks(const Context& context, std::int64_t channels);

struct BlockPlan {
  std::vector<bool> blocks;         // of each value
  std::map<int, Layout> beginning;  // images that a convolution makes blocks of, in this layout
};
// Pools and a network's first convolution begin blocks where they lead to convolutions that gain
// from them.
BlockPlan plan_blocks(const Graph& graph, const std::vector<Node>& nodes, const Users& users,
                      const Context& context);

}  // namespace warpstep::cpu
