// The page's section on the whole run: one bar for its wall time, and its slow steps.
#include <fmt/format.h>

#include <array>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// Steps have the kernels' colour, waiting that of waits; neighbours differ.
std::string_view colour(const RunPart& part, std::size_t position) {
  if (part.name == "steps") return "c-kernel";
  if (part.name == "first batch") return "c-data";
  if (part.name == "evaluation") return "c-copy";
  if (part.name == "checkpoint") return "c-sync";
  if (part.name == "other") return "c-other";
  return position % 2 == 0 ? "c-cpu" : "c-runtime";
}

}  // namespace

std::string run_part(const Analysis& analysis) {
  const WholeRun& run = analysis.run;
  if (!run.has_phases || run.wall_ns <= 0) return "";
  constexpr double least_labelled = 0.01;
  std::string body, legend;
  double x = 0;
  for (std::size_t i = 0; i < run.parts.size(); ++i) {
    const RunPart& part = run.parts[i];
    const double share = part.ns / run.wall_ns;
    const std::string what = fmt::format("{} {}", part.name, quantity(share, Unit::share));
    const std::string within = parts_text(part);
    body += bar(colour(part, i), x, 0, share, 30,
                fmt::format("{}, {}{}{}", what, quantity(part.ns, Unit::ns),
                            within.empty() ? "" : ": ", within));
    if (share >= least_labelled) legend += legend_item(colour(part, i), what);
    x += share;
  }
  std::string title = fmt::format("The whole run, {}", quantity(run.wall_ns, Unit::ns));
  if (run.first_step_ns > 0)
    title +=
        fmt::format("; the first step was done after {}", quantity(run.first_step_ns, Unit::ns));
  const std::string slow =
      analysis.slow_steps.empty()
          ? ""
          : table(on_page(slow_steps_table(analysis.slow_steps)), {.titled = true});
  return section("run", "Where the run's wall time went", "",
                 chart({.id = "run-bar",
                        .title = title,
                        .summary = "One bar for the run's wall time, cut into its phases.",
                        .height = 30,
                        .body = body,
                        .legend = legend,
                        .table = table(run_table(run))}) +
                     slow);
}

}  // namespace warpstep::profiler::html
