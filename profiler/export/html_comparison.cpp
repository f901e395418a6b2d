// The comparison at the head of a page: the verdict, the scores, and what changed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

namespace {

std::string signed_time(double ns) {
  return fmt::format("{}{}", ns > 0 ? "+" : "", quantity(ns, Unit::ns));
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
                .title = fmt::format("Together: {} per step", signed_time(sum)),
                .summary = "A bar per part, each from where the one before ended.",
                .height = y,
                .body = vertical("l-mark", across(0), 0, y) + body,
                .legend = legend_item("slower", "slower") + legend_item("faster", "faster"),
                .table = table(data)});
}

std::string intervals(const Comparison& comparison) {
  std::vector<const Change*> significant;
  for (const Change& change : comparison.changes)
    if (change.is_significant) significant.push_back(&change);
  if (significant.empty()) return "";
  constexpr int row_height = 38;
  double low = 0, high = 0;
  for (const Change* change : significant) {
    low = std::min(low, change->low);
    high = std::max(high, change->high);
  }
  const double range = std::max(high - low, 1.0) * 1.04;
  const auto across = [&](double ns) { return 0.02 + (ns - low) / range; };
  std::string body =
      vertical("l-mark", across(0), 0, row_height * static_cast<double>(significant.size()));
  Table data{.key = "significant",
             .title = "Significant changes",
             .columns = {{"what", "what"},
                         {"change_ns", "change", Unit::ns},
                         {"low_ns", "95 % from", Unit::ns},
                         {"high_ns", "to", Unit::ns}}};
  int y = 0;
  for (const Change* change : significant) {
    const double ns = change->delta();
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
  return chart(
      {.id = "intervals",
       .title = "Changes with their 95 % intervals",
       .summary = "A dot per change, a line for its interval; right of the mark is slower.",
       .height = y,
       .body = body,
       .table = table(data)});
}

std::string differences_part(std::string_view title,
                             const std::vector<FootingDifference>& differences) {
  if (differences.empty()) return "";
  std::string html = fmt::format("<h3>{}</h3>\n<ul class=\"warnings\">\n", escaped(title));
  for (const FootingDifference& difference : differences)
    html += "<li>" + escaped(difference.text()) + "</li>\n";
  return html + "</ul>\n";
}

}  // namespace

std::string comparison_part(const Comparison& comparison) {
  const bool has_headline = !comparison.headline.empty();
  std::string body = fmt::format("<p class=\"verdict\">{}</p>\n",
                                 prose(has_headline ? comparison.headline : comparison.verdict));
  if (has_headline) body += "<p class=\"diagnosis\">" + prose(comparison.basis) + "</p>\n";
  if (!comparison.scores.empty()) body += table(scores_table(comparison), {.titled = true});
  body += waterfall(comparison) + intervals(comparison);
  if (!comparison.warnings.empty()) {
    body += "<ul class=\"warnings\">\n";
    for (const std::string& warning : comparison.warnings)
      body += "<li>" + escaped(warning) + "</li>\n";
    body += "</ul>\n";
  }
  body += differences_part("Differs by intent", comparison.footing.by_intent) +
          differences_part("Differs by machine", comparison.footing.by_machine);
  if (!comparison.changes.empty())
    body += table(with_columns(to_table(comparison)), {.titled = true, .filter = true, .code = 0});
  return section("comparison", comparison.is_halves ? "Odd and even steps" : "Before and after", "",
                 body) +
         section("run-after", comparison.is_halves ? "This run" : "The run after",
                 "From here on: the report of this run alone.", "");
}

}  // namespace warpstep::profiler::html
