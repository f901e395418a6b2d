// What a comparison compares: a number per step of the step, its parts and its calls, for each run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

enum class Scope : std::uint8_t { step, part, module, call };

struct Series {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<double> ns;  // by step, or by update the mean of its steps
};

// The chosen steps of a run, into Session::steps: of the totals, which every step has, and of the
// calls, which only the steps of complete windows have.
struct ChosenSteps {
  std::vector<std::size_t> totals, calls;
  std::size_t update = 1;  // both are whole updates of so many steps, in order
};
// All steps but the first ones, which warm up; of several runs those with the numbers that all have
// in common, unless that leaves less than half of a run's. With --accumulate only those of whole
// updates: the optimiser's calls run in the last step of an update alone. Calls: none, unless each
// run has at least `least` such steps, and half as many updates.
std::vector<ChosenSteps> choose_steps(const std::vector<const Session*>& runs, std::size_t least);

// "step", parts, modules of at most `depth` names (those of several calls), calls in the order of
// the program; with --accumulate the means of updates.
std::vector<Series> series_of(const Session& session, const ChosenSteps& steps, std::size_t depth);

bool is_of_calls(Scope scope);  // which only steps of windows have

// A row of the comparison: the medians of the parts of each run (compare_statistics.h); 0 where a
// run lacks it.
struct Row {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<std::vector<double>> runs;  // by run, then part
  std::vector<double> fast;               // by run: fast_level() of its steps
};
std::vector<Row> rows_of(const std::vector<std::vector<Series>>& runs);

}  // namespace warpstep::profiler
