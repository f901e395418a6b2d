// The page's section on the whole run: one bar for its wall time, and its slow steps.
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// Steps have the kernels' colour, waiting that of waits; each of the others that the legend lists
// has its own.
class PartColours {
 public:
  std::string_view of(std::string_view part, bool is_listed) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 5> known{
        {{"steps", "c-kernel"},
         {"first batch", "c-data"},
         {"evaluation", "c-copy"},
         {"checkpoint", "c-sync"},
         {"other", "c-other"}}};
    constexpr std::array<std::string_view, 10> others{
        "c-cpu", "c-runtime", "c-core", "c-communication", "c-memset", "s3", "s2",
        "s1",    "s4",        "s0"};
    for (const auto& [name, css] : known)
      if (part == name) return css;
    return is_listed && used_ < others.size() ? others[used_++] : "c-rest";
  }

 private:
  std::size_t used_ = 0;
};

}  // namespace

std::string run_part(const Analysis& analysis) {
  const WholeRun& run = analysis.run;
  if (!run.has_phases || run.wall_ns <= 0) return "";
  constexpr double least_listed = 0.01, least_numbered = 0.03;
  PartColours colours;
  int number = 0;
  std::string body, legend, labels;
  double x = 0;
  for (const RunPart& part : run.parts) {
    const double share = part.ns / run.wall_ns;
    const bool is_listed = share >= least_listed;
    const std::string_view css = colours.of(part.name, is_listed);
    const std::string what = fmt::format("{}{} {}", is_listed ? fmt::format("{} ", ++number) : "",
                                         part.name, quantity(share, Unit::share));
    const std::string within = parts_text(part);
    body += bar(css, x, 0, share, 30,
                fmt::format("{}, {}{}{}", what, quantity(part.ns, Unit::ns),
                            within.empty() ? "" : ": ", within));
    if (is_listed) legend += legend_item(css, what);
    if (share >= least_numbered)
      labels += text(x + share / 2, 20, std::to_string(number), "number", "middle");
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
                        .body = body + labels,
                        .legend = legend,
                        .table = table(run_table(run))}) +
                     slow);
}

}  // namespace warpstep::profiler::html
