// A prediction of how a step scales over the ranks of a data-parallel job: which of its exchanges
// the backward half hides. A model, not a measurement: every rank is as fast as the others, and a
// link that exchanges slows nothing down that computes.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/passes/schedule.h"

namespace warpstep {

// How fast a rank exchanges: the alpha-beta model. A sum of n bytes over r ranks takes
// 2 (r - 1) / r n / bytes_per_second, as in a ring, and 2 ceil(log2 r) latencies, as in a tree;
// what goes one way only (a sum for its owner, a gathering) half of both.
struct Link {
  double bytes_per_second = 0, latency_seconds = 0;
};

struct ExchangeTime {
  std::string name;
  double bytes = 0;                      // of a rank
  double ready = 0, begin = 0, end = 0;  // seconds after the step's begin
};

struct ScaledStep {
  std::int64_t ranks = 1;
  std::int64_t accumulate = 1;  // steps an update, of which the last exchanges gradients
  // Seconds of a step, means over the steps of an update.
  double of_one_rank = 0;               // in a job of one
  double alone = 0;                     // without exchanges
  double exchange = 0;                  // of all exchanges together
  double exposed = 0;                   // of exchanges, while nothing else runs
  std::vector<ExchangeTime> exchanges;  // of a step that updates

  // Above 1 where a sharded update saves more than the exchanges take.
  double efficiency() const { return of_one_rank / (alone + exposed); }
  double efficiency_without_overlap() const { return of_one_rank / (alone + exchange); }
};

// `step` is compiled for a job; `seconds` gives the time of a node that exchanges nothing, in a
// step that runs it, with the job's own number of ranks.
ScaledStep scale_step(const Graph& step, const Lanes& lanes,
                      const std::function<double(const Node&)>& seconds, std::int64_t ranks,
                      const Link& link);

// The exchanges of the last of `steps`, and a row for each.
std::string scaling_text(const std::vector<ScaledStep>& steps);
nlohmann::json scaling_json(const std::vector<ScaledStep>& steps);

}  // namespace warpstep
