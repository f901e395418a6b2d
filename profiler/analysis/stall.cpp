// Why the trainer waits for data, and the cheapest setting in which it does not.
#include <algorithm>
#include <array>

#include "profiler/analysis/counted.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/stall_text.h"

namespace warpstep::profiler {
namespace {

using advice::LoaderModel;

constexpr double least_share = 0.02;  // of a step: less waiting is no stall
constexpr int longest_curve = 64;

double busy_workers(const LoaderView& view) {
  const double step = view.step_ns + view.wait_ns;
  return step > 0 ? std::min<double>(view.workers, view.work_ns / step) : 0;
}

// What keeps workers: the CPU when their CPU time is near their wall time. Without that figure the
// process's CPU time bounds it from above; where the host computes, kernels are part of that.
std::string find_bound(const LoaderView& view, const Stall& stall, const Session& session) {
  if (view.work_ns <= 0) return "";
  if (view.cpu_share >= 0.8) return "cpu";
  if (view.cpu_share > 0 && view.cpu_share <= 0.5) return "io";
  const advice::Level process = advice::level(session, "process cpu %");
  const advice::Level disk = advice::level(session, "disk busy %");
  const bool reads = stall.stage == "read";
  if (reads && disk.count > 0 && disk.mean >= 50) return "io";
  if (process.count > 0 && process.mean / 100 < 0.5 * busy_workers(view)) return "io";
  if (!reads && !stall.stage.empty()) return "cpu";
  // Reading that the disk has no part in copies from the page cache.
  return disk.count > 0 && disk.mean < 10 ? "cpu" : "";
}

bool hides(const LoaderModel& model, const advice::Predicted& predicted) {
  return predicted.wait_ns < least_share * model.free_step_ns() &&
         predicted.step_ns <= (1 + least_share) * model.free_step_ns();
}

void try_workers(const LoaderModel& model, Stall& stall) {
  const int most = std::min(model.most_workers(), longest_curve);
  std::vector<double> steps;
  for (int k = 1; k <= most; ++k) {
    const advice::Predicted predicted = model.predict({.workers = k});
    stall.wait_by_workers_ns.push_back(predicted.wait_ns);
    steps.push_back(predicted.step_ns);
    if (stall.workers_needed == 0 && hides(model, predicted)) stall.workers_needed = k;
  }
  const double shortest = *std::min_element(steps.begin(), steps.end());
  const auto best = std::find_if(steps.begin(), steps.end(),
                                 [&](double step) { return step <= 1.01 * shortest; });
  stall.best_workers = static_cast<int>(best - steps.begin()) + 1;
  stall.step_with_best_ns = *best;
  stall.step_with_them_ns =
      stall.workers_needed > 0 ? steps[static_cast<std::size_t>(stall.workers_needed - 1)] : *best;
  if (stall.step_with_them_ns > 0) stall.speedup = stall.step_ns / stall.step_with_them_ns;
}

void try_prefetch(const LoaderModel& model, const LoaderView& view, Stall& stall) {
  constexpr std::array<int, 8> values{2, 3, 4, 6, 8, 16, 32, 64};
  for (const int prefetch : values) {
    const advice::Predicted predicted = model.predict({.prefetch = prefetch});
    stall.wait_by_prefetch_ns.emplace_back(prefetch, predicted.wait_ns);
    if (stall.prefetch_needed > 0 || prefetch <= view.prefetch) continue;
    if (predicted.wait_ns >= least_share * model.free_step_ns()) continue;
    stall.prefetch_needed = prefetch;
    stall.step_with_prefetch_ns = predicted.step_ns;
  }
}

// From the means first, which the replay may find too little: then twice the way to none at all.
void try_stage(const LoaderModel& model, Stall& stall) {
  const double part = stall.stage_share;
  if (part <= 0) return;
  const double surplus = 1 - model.work_hidden() / model.work_ns();  // of the work
  double left = std::min(1.0, 1 - surplus / part);                   // of the stage
  const auto wait = [&](double of_stage) {
    return model.predict({.work_scale = 1 - part * (1 - of_stage)}).wait_ns;
  };
  for (int tries = 0; left > 0.01 && tries < 12; ++tries, left *= 0.8) {
    if (wait(left) >= least_share * model.free_step_ns()) continue;
    stall.stage_speedup_needed = 1 / left;
    return;
  }
}

void find_stage(const LoaderView& view, Stall& stall) {
  const auto longest = std::max_element(view.stage_ns.begin(), view.stage_ns.end());
  if (longest == view.stage_ns.end() || *longest <= 0 || view.work_ns <= 0) return;
  stall.stage = view.stages[static_cast<std::size_t>(longest - view.stage_ns.begin())];
  stall.stage_share = std::min(1.0, *longest / view.work_ns);
}

}  // namespace

Stall diagnose(const LoaderView& view, const Session& session) {
  Stall stall;
  const std::vector<std::size_t> counted = advice::counted_steps(session);
  if (!counted.empty()) {
    stall.first_step = session.steps[counted.front()].step;
    stall.last_step = session.steps[counted.back()].step;
  }
  stall.wait_ns = view.wait_ns;
  stall.step_ns = view.step_ns + view.wait_ns;
  stall.is_stalled = stall.step_ns > 0 && stall.wait_ns >= least_share * stall.step_ns;
  find_stage(view, stall);
  stall.bound = find_bound(view, stall, session);
  if (view.work_ns > 0 && stall.step_ns > 0) {
    const LoaderModel model(view, session, stall.bound == "io");
    stall.predicted_wait_ns = model.predict({}).wait_ns;
    try_workers(model, stall);
    try_prefetch(model, view, stall);
    if (stall.is_stalled) try_stage(model, stall);
  }
  stall.text = advice::stall_text(view, stall);
  return stall;
}

}  // namespace warpstep::profiler
