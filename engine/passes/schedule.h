// The order of the step's calls.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// Drops nodes that nothing needs and orders the others: as recorded, which frees a layer's
// activations as soon as its weight gradient is done. Throws Error if a node comes before a value
// it needs.
Graph schedule(Graph graph);

// Whether the node may change a buffer (Role::buffer) in a way that the engine does not know: an op
// of a user's that takes one. It runs once in every training step, also if nothing reads its
// outputs.
bool may_change_buffer(const Graph& graph, const Node& node);

// Which nodes run on side streams, and where they are waited for. A node of a side lane begins
// after all nodes of lower lanes that stand before it.
struct Lanes {
  static constexpr int weight_gradients = 1, exchange = 2, count = 3;
  std::vector<int> lane;  // of each node: 0, or one of the above
  // For nodes of a side lane: the node of lane 0 that begins when they are done, the number of
  // nodes for the end of the step; -1 for others.
  std::vector<int> waited_at;

  bool used() const;  // one besides lane 0
  bool used(int lane) const;
  // The last node that may run while `node` does: its inputs and its workspace are in use until
  // then.
  int busy_until(int node) const;
};
Lanes one_lane(const Graph& graph);

// Weight gradients, whose results nothing reads before the optimiser, run in parallel with the data
// gradients and fill what those leave idle; large ones, which fill a device by themselves, stay in
// lane 0. Each is waited for where the next but one begins, so that no more than two layers'
// activations are kept alive longer than in one lane.
Lanes two_lanes(const Graph& graph);

// Moves the sums over ranks to a lane of their own, beside what follows them, up to the first node
// that reads one of their gradients. They keep
// nothing alive: gradients persist.
Lanes with_exchange_lane(Lanes lanes, const Graph& graph);

}  // namespace warpstep
