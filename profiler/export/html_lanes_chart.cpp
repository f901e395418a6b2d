#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "profiler/export/html.h"
#include "profiler/export/html_lanes.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// In pixels; the script knows them by the same names.
constexpr int label_height = 17, row_height = 16, lane_gap = 7, queue_height = 34, axis_height = 20;

std::string axis(const LaneStep& step, int height) {
  std::string html;
  const double length = static_cast<double>(step.length_ns);
  for (const double at : ticks(length)) {
    html += vertical("grid", at / length, 0, height - axis_height);
    html += text(at / length, height - 5, tick_text(at, Unit::ns), "tick");
  }
  return html;
}

std::string queue_lane(const Lanes& lanes, const LaneStep& step, int top) {
  const double base = top + queue_height;
  const double scale =
      (queue_height - 2) / static_cast<double>(std::max<std::uint64_t>(lanes.most_ready, 1));
  std::vector<Point> points;
  for (const auto& [at, ready] : step.queue) {
    const double x = static_cast<double>(at) / static_cast<double>(step.length_ns);
    if (!points.empty()) points.push_back({x, points.back().y});
    points.push_back({x, base - static_cast<double>(ready) * scale});
  }
  if (!points.empty()) points.push_back({1, points.back().y});
  return area("queue", points, base, base);
}

Table totals(const Lanes& lanes, const LaneStep& step) {
  Table table{.key = "lanes",
              .title = fmt::format("Step {} by lane", step.step),
              .note = "The sum of each name's bars; nested ones count in what is around them too.",
              .columns = {{"lane", "lane"},
                          {"what", "what"},
                          {"count", "bars", Unit::count},
                          {"time_ns", "time", Unit::ns}}};
  for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane) {
    std::map<std::uint32_t, std::pair<std::int64_t, std::int64_t>> sums;
    for (const LaneBar& bar : step.bars[lane]) {
      ++sums[bar.name].first;
      sums[bar.name].second += static_cast<std::int64_t>(bar.end_ns - bar.begin_ns);
    }
    for (const auto& [name, sum] : sums)
      table.rows.push_back({lanes.lanes[lane], lanes.names[name], sum.first, sum.second});
  }
  return table;
}

std::string legend(const Lanes& lanes) {
  std::set<std::uint32_t> used;
  for (const LaneStep& step : lanes.steps)
    for (const auto& of_lane : step.bars)
      for (const LaneBar& bar : of_lane) used.insert(bar.css);
  std::string html;
  for (const std::uint32_t css : used) html += legend_item(lanes.classes[css], lanes.kinds[css]);
  return html;
}

std::string bars_of(const Lanes& lanes, const LaneStep& step, std::size_t lane, int top) {
  std::string html;
  const double length = static_cast<double>(step.length_ns);
  for (const LaneBar& bar : step.bars[lane]) {
    const double ns = static_cast<double>(bar.end_ns - bar.begin_ns);
    // A seam between bars, where it leaves something of them.
    const std::string css = lanes.classes[bar.css] + (ns > 0.006 * length ? " w" : "");
    html += html::bar(css, static_cast<double>(bar.begin_ns) / length,
                      top + static_cast<int>(bar.row) * row_height, std::max(ns / length, 0.0008),
                      row_height - 1,
                      fmt::format("{}, {}", lanes.names[bar.name], quantity(ns, Unit::ns)));
  }
  return html;
}

}  // namespace

std::string lanes_chart(const Lanes& lanes, std::size_t index) {
  const LaneStep& step = lanes.steps[index];
  std::string body;
  int top = 0;
  for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane) {
    body += text(0, top + 13, lanes.lanes[lane], "lane", "start");
    body += fmt::format("<g class=\"bars\" data-top=\"{}\">{}</g>\n", top + label_height,
                        bars_of(lanes, step, lane, top + label_height));
    top += label_height + static_cast<int>(lanes.rows[lane]) * row_height + lane_gap;
  }
  if (lanes.most_ready > 0) {
    body += text(0, top + 13, fmt::format("batches ready (at most {})", lanes.most_ready), "lane",
                 "start");
    body += fmt::format("<g class=\"depth\" data-top=\"{}\">{}</g>\n", top + label_height,
                        queue_lane(lanes, step, top + label_height));
    top += label_height + queue_height + lane_gap;
  }
  const int height = top + axis_height;
  Chart result{.id = "lanes",
               .title = fmt::format("Lanes of step {}, {}", step.step,
                                    quantity(static_cast<double>(step.length_ns), Unit::ns)),
               .summary = "What each thread and stream did in the step, from its begin to its end.",
               .height = height,
               .body = "<g class=\"axis\">" + axis(step, height) + "</g>\n" + body,
               .legend = legend(lanes),
               .table = table(totals(lanes, step)),
               .is_interactive = true};
  return chart(result);
}

}  // namespace warpstep::profiler::html
