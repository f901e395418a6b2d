// What the CPU's threads reach at most, measured without any kernel of the backend: multiply-adds
// from registers, and a copy of memory. And how to make their caches cold.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/passes/precision.h"
#include "engine/run/backend.h"

namespace warpstep::bench {

struct CpuRoofs {
  double flops_per_s = 0;  // all threads, with the instructions that cpu_isa() or
                           // bf16_isa() allows
  double bytes_per_s = 0;  // likewise; read and written, with ordinary stores
  double steadiness = 0;   // the runs' mean FLOP/s over the best: below 1 on a busy machine

  // The larger of both is the least time of a call.
  double compute_s(const Cost& cost) const { return cost.flops / flops_per_s; }
  double move_s(const Cost& cost) const { return cost.bytes / bytes_per_s; }
  bool bytes_bind(const Cost& cost) const { return move_s(cost) > compute_s(cost); }
  // Of the roof that bounds the call: 1 is the roof itself. Above 1 are algorithms that need fewer
  // operations than the definition, and operands in a cache.
  double share(const Cost& cost, double seconds) const {
    return std::max(compute_s(cost), move_s(cost)) / seconds;
  }
};

// The best of many short runs: other programs only make them slower. Takes half a second. Uses as
// many threads as the backend's steps.
CpuRoofs measure_cpu_roofs(const Backend& backend, Precision precision);

// In a step of the backend: reads memory of its own in every thread of the team until the
// second-level caches hold nothing else.
class ColdCaches {
 public:
  explicit ColdCaches(const Backend& backend);
  void flush();

 private:
  std::size_t lines_ = 0;  // per thread
  std::vector<float> memory_;
};

}  // namespace warpstep::bench
