// Compares two live runs that took turns on one machine (`warpstep try`). What slows the machine
// down for longer than a turn slows down both, and cancels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// A time in which one of two runs was stopped.
struct Turn {
  bool is_changed = false;                 // the turn of the run with the change, else of the other
  std::uint64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC
};

// Two runs that were started together. Each pair of neighbouring turns, (0, 1), (2, 3), ..., has
// one of either run.
struct LivePair {
  const Session* before = nullptr;
  const Session* changed = nullptr;
  std::vector<Turn> turns;
};

// Means over the counted steps of a side.
struct TurnMeans {
  std::size_t steps = 0;
  double samples = 0;  // per step
  double step_ns = 0;  // and its parts
  double data_ns = 0, copies_ns = 0, kernels_ns = 0, cpu_ns = 0, other_ns = 0;

  double sample_ns() const { return step_ns / samples; }
};

// Ratios are of the time per sample, with the change by without it.
struct TurnComparison {
  TurnMeans before, changed;
  double ratio = 1;
  double low = 1, high = 1;  // 95 % interval
  std::size_t pairs = 0;     // of turns, that counted

  bool is_significant() const { return low > 1 || high < 1; }
  double smallest_change() const;  // that these turns can show, as a share
};

// The steps of a turn are those that lie in it as a whole, without two in its first 50 ms, which
// find cold caches. A pair counts if both turns have such steps; its value is the logarithm of the
// ratio of their mean times per sample: means, so that a wait at every tenth step counts. The level
// of two runs started together is the Hodges-Lehmann estimate of their pairs, the median of the
// means of all two of them, which a few disturbed turns do not move. The result is the mean of the
// levels. Its interval is the moderated t of compare_statistics.h with one group: the levels'
// variance, pooled with what is known before: `between_starts`, the sd of the logarithm that two
// equal processes differ by throughout (placement in memory), and the spread of the pairs.
// DataError if fewer than 3 pairs of one start count.
TurnComparison compare_turns(const std::vector<LivePair>& starts, double between_starts);

// The Hodges-Lehmann estimate of a centre; 0 of none.
double hodges_lehmann(const std::vector<double>& values);

}  // namespace warpstep::profiler
