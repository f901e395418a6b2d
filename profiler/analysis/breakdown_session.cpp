#include <algorithm>

#include "profiler/analysis/categories.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

using namespace analysis;

namespace {

Parts told_parts(const Step& step) {
  Parts parts{};
  const auto at = [&](Category c) -> std::uint64_t& { return parts[static_cast<std::size_t>(c)]; };
  at(Category::kernel) = step.kernels_ns;
  at(Category::copy) = step.copies_ns;
  at(Category::data) = step.data_ns;
  at(Category::cpu) = step.cpu_ns;
  at(Category::other) = step.other_ns;
  return parts;
}

void find_means(const std::vector<std::size_t>& counted, Breakdown& breakdown) {
  breakdown.counted = counted.size();
  if (counted.empty()) return;
  const double n = static_cast<double>(counted.size());
  breakdown.from_spans = true;
  for (const std::size_t i : counted) {
    for (std::size_t c = 0; c < categories; ++c)
      breakdown.mean[c] += static_cast<double>(breakdown.steps[i].parts[c]) / n;
    breakdown.from_spans = breakdown.from_spans && breakdown.steps[i].from_spans;
  }
  for (const double part : breakdown.mean) breakdown.step_ns += part;
}

}  // namespace

Breakdown break_down(const Session& session, const BreakdownOptions& options) {
  Breakdown breakdown{.tb_compatible = options.tb_compatible};
  for (const Step& step : session.steps)
    breakdown.steps.push_back({step.step, {step.begin_ns, step.end_ns}, told_parts(step), false});

  const std::vector<std::size_t> recorded = recorded_steps(session);
  std::vector<std::size_t> counted = counted_steps(session);
  std::vector<Interval> times;
  if (options.tb_compatible && !recorded.empty()) {
    const TbSteps tb = tb_steps(session, recorded);
    times = tb.times;
    counted.clear();
    for (std::size_t i = 0; i < recorded.size(); ++i)
      if (tb.is_kept[i]) counted.push_back(recorded[i]);
  } else {
    const std::vector<Interval> all = step_times(session);
    for (const std::size_t i : recorded) times.push_back(all[i]);
  }

  if (!recorded.empty()) {
    const std::vector<Parts> parts = sweep(times, by_category(session, options));
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      StepParts& step = breakdown.steps[recorded[i]];
      step.time = times[i];
      step.parts = parts[i];
      step.from_spans = true;
    }
  }
  find_means(counted, breakdown);
  return breakdown;
}

}  // namespace warpstep::profiler
