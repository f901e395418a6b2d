// Compares runs: what changed, and how certain that is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/footing.h"
#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct CompareOptions {
  bool force = false;               // compare runs on different devices
  double least_share = 0.01;        // of the step: smaller changes are not significant
  double false_discoveries = 0.05;  // Benjamini-Hochberg's q
  // The sd of a step between equal runs, as a share of it: 21 runs of the mlp on a shared core.
  // What the runs show of noise and disturbances is added; see difference_of_runs().
  double between_runs = 0.0091;
  // How many runs that figure is worth. With 5, three runs a side show 3 % in 95 of 100 cases. More
  // would trust it more where it is wrong: where the true sd is twice as large, 12 % of equal
  // triples differ, and 22 % with 20.
  int prior_runs = 5;
  std::size_t depth = 2;  // of the modules, in names: "layer1.0"; 0: none
};

// What a run has learned at its end; shares of 1.
struct RunScore {
  std::optional<double> training_loss, training_accuracy, validation_loss, validation_accuracy;
};
// Of the steps of the last epoch that the session has: no validation.
RunScore score_of(const Session& session);

struct ComparedRun {
  const Session* session = nullptr;
  RunScore score;
};

struct Change {
  std::string what;  // "step", "conv1/conv", "data wait"
  std::string phase;
  double before_ns = 0, after_ns = 0;  // levels (compare_statistics.h), the means of a side's runs
  double low = 0, high = 0;            // 95 % interval of (after - before), ns
  double p = 1;
  bool is_significant = false;  // the interval excludes 0, large enough, and survives the family

  double delta() const { return after_ns - before_ns; }
};

// A score beside the times: the means of both sides, and their extremes where there are more runs.
struct ScoreChange {
  std::string what;       // "validation accuracy"
  bool is_share = false;  // else a loss
  double before = 0, after = 0;
  double before_low = 0, before_high = 0, after_low = 0, after_high = 0;
};

struct Comparison {
  Footing footing;                    // what differs in the stamps
  std::vector<std::string> warnings;  // of the measurement: too few steps, other programs
  std::vector<Change> changes;        // "step", parts, modules, calls: of each the largest first
  std::vector<ScoreChange> scores;
  // The step's change as a sum: significant parts, then the rest.
  std::vector<std::pair<std::string, double>> waterfall;
  std::size_t runs_before = 1, runs_after = 1;
  // Of a step, as shares of it: what these runs can show, and what equal ones may differ by.
  double smallest_change = 0, by_chance = 0;
  bool is_halves = false;        // of one run
  double may_be_machine_ns = 0;  // of the step's change: other work, lower clocks
  std::string basis;             // what these runs can show, and what makes them unequal
  std::string headline;          // the step, and what it is most of
  std::string verdict;           // both
};
// Throws UsageError when devices, models or batches differ, unless forced, and when there are too
// few steps.
Comparison compare(const std::vector<ComparedRun>& before, const std::vector<ComparedRun>& after,
                   const CompareOptions& options = {});
Comparison compare(const Session& before, const Session& after, const CompareOptions& options = {});
// Odd against even steps of one run: the noise floor within it.
Comparison compare_halves(const Session& session, const CompareOptions& options = {});

std::vector<ScoreChange> score_changes(const std::vector<ComparedRun>& before,
                                       const std::vector<ComparedRun>& after);
void word(Comparison& comparison);           // the verdict and its parts
std::string title_of(const Change& change);  // "conv1/conv forward"
Table to_table(const Comparison& comparison);
Table scores_table(const Comparison& comparison);

}  // namespace warpstep::profiler
