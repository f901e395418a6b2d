#include "profiler/analysis/turns.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "engine/core/error.h"
#include "profiler/analysis/compare_statistics.h"

namespace warpstep::profiler {
namespace {

// The first steps of a turn find other caches than they left: at most so many, soon after its
// begin.
constexpr std::size_t cold_steps = 2;
constexpr std::uint64_t cold_ns = 50'000'000;
constexpr std::size_t least_pairs = 3;  // of a start
constexpr int prior_starts = 5;         // that the prior is worth, as CompareOptions::prior_runs

// The counted steps of a turn, in order.
std::vector<const Step*> steps_of(const Session& session, const Turn& turn) {
  std::vector<const Step*> steps;
  std::size_t cold = 0;
  for (const Step& step : session.steps) {
    if (step.begin_ns < turn.begin_ns || step.end_ns > turn.end_ns || step.samples == 0) continue;
    if (cold < cold_steps && step.begin_ns < turn.begin_ns + cold_ns)
      ++cold;
    else
      steps.push_back(&step);
  }
  return steps;
}

double sample_ns(const std::vector<const Step*>& steps) {
  double ns = 0, samples = 0;
  for (const Step* step : steps) {
    ns += static_cast<double>(step->end_ns - step->begin_ns);
    samples += static_cast<double>(step->samples);
  }
  return ns / samples;
}

void add(const std::vector<const Step*>& steps, TurnMeans& sums) {
  for (const Step* step : steps) {
    sums.steps += 1;
    sums.samples += static_cast<double>(step->samples);
    sums.step_ns += static_cast<double>(step->end_ns - step->begin_ns);
    sums.data_ns += static_cast<double>(step->data_ns);
    sums.copies_ns += static_cast<double>(step->copies_ns);
    sums.kernels_ns += static_cast<double>(step->kernels_ns);
    sums.cpu_ns += static_cast<double>(step->cpu_ns);
    sums.other_ns += static_cast<double>(step->other_ns);
  }
}

void divide(TurnMeans& sums) {
  const auto steps = static_cast<double>(sums.steps);
  for (double* sum : {&sums.samples, &sums.step_ns, &sums.data_ns, &sums.copies_ns,
                      &sums.kernels_ns, &sums.cpu_ns, &sums.other_ns})
    *sum /= steps;
}

// The logarithms of a start's pairs; adds their steps.
std::vector<double> log_ratios(const LivePair& start, TurnComparison& result) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i + 1 < start.turns.size(); i += 2) {
    const bool changed_first = start.turns[i].is_changed;
    const auto before = steps_of(*start.before, start.turns[changed_first ? i + 1 : i]);
    const auto changed = steps_of(*start.changed, start.turns[changed_first ? i : i + 1]);
    if (before.empty() || changed.empty()) continue;
    ratios.push_back(std::log(sample_ns(changed) / sample_ns(before)));
    add(before, result.before);
    add(changed, result.changed);
  }
  if (ratios.size() < least_pairs)
    fail<DataError>(
        "{} of {} pairs of turns have whole steps of both sides, and {} are needed: give longer or "
        "more turns",
        ratios.size(), start.turns.size() / 2, least_pairs);
  return ratios;
}

// The variance of the Hodges-Lehmann estimate, pi/3 of the mean's if the values are normal; their
// deviation is 1.4826 times the median of the distances from the median.
double variance_of_level(const std::vector<double>& values) {
  const double centre = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - centre));
  const double sd = 1.4826 * median(std::move(distances));
  return std::numbers::pi / 3 * sd * sd / static_cast<double>(values.size());
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double hodges_lehmann(const std::vector<double>& values) {
  std::vector<double> means;
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = i; j < values.size(); ++j) means.push_back((values[i] + values[j]) / 2);
  return median(std::move(means));
}

double TurnComparison::smallest_change() const {
  return std::sqrt(high / low) - 1;
}

TurnComparison compare_turns(const std::vector<LivePair>& starts, double between_starts) {
  TurnComparison result;
  std::vector<double> levels, within;
  for (const LivePair& start : starts) {
    const std::vector<double> ratios = log_ratios(start, result);
    levels.push_back(hodges_lehmann(ratios));
    within.push_back(variance_of_level(ratios));
    result.pairs += ratios.size();
  }
  if (levels.empty()) fail<UsageError>("no runs to compare");
  divide(result.before);
  divide(result.changed);
  const double centre = mean(levels), freedom = static_cast<double>(levels.size() - 1);
  double squares = 0;
  for (const double level : levels) squares += (level - centre) * (level - centre);
  const double prior = between_starts * between_starts + mean(within);
  const double variance = (prior_starts * prior + squares) / (prior_starts + freedom);
  const double half =
      student_95(prior_starts + freedom) * std::sqrt(variance / static_cast<double>(levels.size()));
  result.ratio = std::exp(centre);
  result.low = std::exp(centre - half);
  result.high = std::exp(centre + half);
  return result;
}

}  // namespace warpstep::profiler
