#include "profiler/analysis/stall_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace warpstep::profiler::advice {
namespace {

std::string digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

std::string bound_text(const std::string& bound) {
  return bound == "cpu" ? ", CPU-bound" : bound == "io" ? ", I/O-bound" : "";
}

// Both parts in the unit of the whole: "12.3 of 41.0 ms".
std::string part_text(double part, double whole) {
  const bool in_ms = whole >= 1e6;
  const double unit = in_ms ? 1e6 : 1e3;
  return fmt::format("{:.1f} of {:.1f} {}", part / unit, whole / unit, in_ms ? "ms" : "us");
}

std::string workers_text(const LoaderView& view, const Stall& stall) {
  const std::string now = count_text(view.workers, "worker");
  if (stall.workers_needed > view.workers)
    return fmt::format("; {} hide it (step {}, {:.2f}x)",
                       count_text(stall.workers_needed, "worker"),
                       time_text(stall.step_with_them_ns), stall.speedup);
  const std::string on = view.cores > 0 ? " on " + count_text(view.cores, "core") : "";
  if (stall.best_workers > view.workers && stall.speedup > 1.02)
    return fmt::format("; no number of workers hides it{}, but {} shorten it (step {}, {:.2f}x)",
                       on, count_text(stall.best_workers, "worker"),
                       time_text(stall.step_with_best_ns), stall.speedup);
  return fmt::format("; more than {} do not help{}", now, on);
}

std::string rest_text(const LoaderView& view, const Stall& stall) {
  std::string text;
  if (view.stall_period > 0)
    text += fmt::format("; one step in {} has all of the waiting", view.stall_period);
  if (stall.prefetch_needed > 0)
    text += fmt::format("; a prefetch of {} hides it", stall.prefetch_needed);
  if (stall.stage_speedup_needed > 1)
    text +=
        fmt::format("; staying at {}, {} must get {:.2f}x faster",
                    count_text(view.workers, "worker"), stall.stage, stall.stage_speedup_needed);
  if (std::abs(stall.predicted_wait_ns - stall.wait_ns) > 0.2 * stall.wait_ns)
    text += fmt::format("; the replay waits {} where {} were measured",
                        time_text(stall.predicted_wait_ns), time_text(stall.wait_ns));
  return text;
}

}  // namespace

std::string time_text(double ns) {
  const double size = std::abs(ns);
  if (size >= 999.5e6) return digits(ns / 1e9) + " s";
  if (size >= 999.5e3) return digits(ns / 1e6) + " ms";
  if (size >= 999.5) return digits(ns / 1e3) + " us";
  return fmt::format("{:.0f} ns", ns);
}

std::string share_text(double share) {
  return fmt::format("{:.{}f}%", 100 * share, share < 0.0995 ? 1 : 0);
}

std::string count_text(double count, const std::string& noun) {
  return fmt::format("{:.0f} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string stall_text(const LoaderView& view, const Stall& stall) {
  if (stall.step_ns <= 0) return "too few steps to tell whether the loader keeps up";
  std::string text = fmt::format("steps {}-{}: waited {} ({}) for the loader", stall.first_step,
                                 stall.last_step, part_text(stall.wait_ns, stall.step_ns),
                                 share_text(stall.wait_ns / stall.step_ns));
  if (view.work_ns <= 0) return text + "; what its workers did was not recorded.";
  if (!stall.stage.empty())
    text += fmt::format("; {} is {} of {} worker time per batch{}", stall.stage,
                        share_text(stall.stage_share), time_text(view.work_ns),
                        bound_text(stall.bound));
  if (!stall.is_stalled) return text + "; loading is hidden behind the step.";
  return text + workers_text(view, stall) + rest_text(view, stall) + ".";
}

}  // namespace warpstep::profiler::advice
