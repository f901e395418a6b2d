// The sums of gradients over the ranks of a data-parallel job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"

namespace warpstep {

// How a backend sums gradients over ranks.
struct Exchange {
  bool in_f32 = true;  // 16-bit gradients are kept as f32 sums beside them, which are exchanged
  // Gradients are exchanged in buckets of at least this size, each as soon as the backward half has
  // made it and needs it no more, and beside what follows; 0: all at once, after the backward half.
  std::size_t bucket_bytes = 0;
  bool operator==(const Exchange&) const = default;
};

// Makes batch norms normalise with the statistics of all ranks' rows. Before differentiation.
Graph synchronize_norms(Graph graph, const Replica& replica);

// Inserts AllReduce nodes, in front of all that reads the gradients of an update. Where gradients
// are summed over steps, the sums are exchanged at once: they are complete at the step's end only.
// `shards`: each rank gets the gradients of its share alone, keeps only its moments and updates
// only it; an AllGather gives it the rest of the parameters (ZeRO, stage 1: Rajbhandari et al.,
// 2020). Throws UsageError for LARS with shards.
Graph reduce_gradients(Graph graph, const Replica& replica, const Exchange& exchange,
                       bool shards = false);

// Parameters of `graph` in buckets, in the order in which the nodes finish with their gradients:
// the last layers' first. Within a bucket they are in the order of the sections.
struct Bucket {
  std::vector<std::size_t> parameters;
  std::size_t bytes = 0;  // of their gradients
  std::size_t ready = 0;  // the last node that makes one of them, or reads one as this rank's own
};
std::vector<Bucket> gradient_buckets(const Graph& graph, std::size_t bucket_bytes);

}  // namespace warpstep
