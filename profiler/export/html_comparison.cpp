// Two runs side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

std::string signed_time(double ns) {
  return fmt::format("{}{}", ns > 0 ? "+" : "", quantity(ns, Unit::ns));
}

Table changes_table(const Comparison& comparison) {
  Table table{.key = "changes",
              .title = "Changes",
              .note =
                  "Medians a step; told are those whose interval leaves out 0 and that are "
                  "large enough.",
              .columns = {{"what", "what"},
                          {"phase", "phase"},
                          {"before_ns", "before", Unit::ns},
                          {"after_ns", "after", Unit::ns},
                          {"change_ns", "change", Unit::ns},
                          {"low_ns", "95 % from", Unit::ns},
                          {"high_ns", "to", Unit::ns},
                          {"p", "p"},
                          {"told", "told"}}};
  for (const Change& change : comparison.changes)
    table.rows.push_back({change.what, change.phase, change.before_ns, change.after_ns,
                          change.after_ns - change.before_ns, change.low, change.high,
                          std::max(change.p, comparison.least_p), change.is_told ? "yes" : "no"});
  return table;
}

// Each part's change starts where the one before ended.
std::string waterfall(const Comparison& comparison) {
  if (comparison.waterfall.empty()) return "";
  constexpr int row_height = 40;
  double low = 0, high = 0, sum = 0;
  for (const auto& [what, ns] : comparison.waterfall) {
    sum += ns;
    low = std::min(low, sum);
    high = std::max(high, sum);
  }
  const double range = std::max(high - low, 1.0);
  const auto across = [&](double ns) { return (ns - low) / range; };
  Table data{.key = "waterfall",
             .title = "The step's change as a sum",
             .columns = {{"what", "what"}, {"change_ns", "change", Unit::ns}}};
  std::string body;
  double at = 0;
  int y = 0;
  for (const auto& [what, ns] : comparison.waterfall) {
    const double begin = std::min(at, at + ns);
    body += text(0, y + 14, fmt::format("{} {}", what, signed_time(ns)), "lane", "start");
    body += bar(ns > 0 ? "slower" : "faster", across(begin), y + 19,
                std::max(std::abs(ns) / range, 0.002), 14);
    at += ns;
    y += row_height;
    data.rows.push_back({what, ns});
  }
  return chart({.id = "waterfall",
                .title = fmt::format("Together: {} a step", signed_time(sum)),
                .summary = "A bar a part, each from where the one before ended.",
                .height = y,
                .body = vertical("l-mark", across(0), 0, y) + body,
                .legend = legend_item("slower", "slower") + legend_item("faster", "faster"),
                .table = table(data)});
}

std::string intervals(const Comparison& comparison) {
  std::vector<const Change*> told;
  for (const Change& change : comparison.changes)
    if (change.is_told) told.push_back(&change);
  if (told.empty()) return "";
  constexpr int row_height = 38;
  double low = 0, high = 0;
  for (const Change* change : told) {
    low = std::min(low, change->low);
    high = std::max(high, change->high);
  }
  const double range = std::max(high - low, 1.0) * 1.04;
  const auto across = [&](double ns) { return 0.02 + (ns - low) / range; };
  std::string body =
      vertical("l-mark", across(0), 0, row_height * static_cast<double>(told.size()));
  Table data{.key = "told",
             .title = "Told changes",
             .columns = {{"what", "what"},
                         {"change_ns", "change", Unit::ns},
                         {"low_ns", "95 % from", Unit::ns},
                         {"high_ns", "to", Unit::ns}}};
  int y = 0;
  for (const Change* change : told) {
    const double ns = change->after_ns - change->before_ns;
    const char* css = ns > 0 ? "slower" : "faster";
    body += text(0, y + 14,
                 fmt::format("{}{}{}: {}", change->what, change->phase.empty() ? "" : ", ",
                             change->phase, signed_time(ns)),
                 "lane", "start");
    body += bar(css, across(change->low), y + 23, (change->high - change->low) / range, 4);
    body += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"6\"/>", css,
                        percent(across(ns)), y + 25);
    y += row_height;
    data.rows.push_back({change->what, ns, change->low, change->high});
  }
  return chart({.id = "intervals",
                .title = "Changes with their 95 % intervals",
                .summary = "A dot a change, a line its interval; right of the mark is slower.",
                .height = y,
                .body = body,
                .table = table(data)});
}

}  // namespace

std::string comparison_part(const Comparison& comparison) {
  std::string body = "<p class=\"diagnosis\">" + escaped(comparison.verdict) + "</p>\n";
  if (!comparison.warnings.empty()) {
    body += "<ul class=\"warnings\">\n";
    for (const std::string& warning : comparison.warnings)
      body += "<li>" + escaped(warning) + "</li>\n";
    body += "</ul>\n";
  }
  body += waterfall(comparison) + intervals(comparison);
  if (!comparison.changes.empty())
    body += table(changes_table(comparison), {.titled = true, .filter = true, .code = 0});
  return section("comparison", "Against the run before", "", body);
}

}  // namespace warpstep::profiler::html
