#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// Shorter than "12.30" where that is the same number.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// Points of a path in a box of 1000 units that is stretched to the chart's width.
std::string through(std::span<const Point> points, char first) {
  std::string path;
  for (const Point& point : points) {
    path += path.empty() ? first : 'L';
    path += number(point.x * 1000) + " " + number(point.y);
  }
  return path;
}

std::string stretched(double height, std::string_view css, const std::string& path) {
  return fmt::format(
      "<svg aria-hidden=\"true\" viewBox=\"0 0 1000 {0}\" width=\"100%\" height=\"{0}\" "
      "preserveAspectRatio=\"none\"><path class=\"{1}\" d=\"{2}\"/></svg>",
      number(height), css, path);
}

}  // namespace

std::string percent(double share) {
  return number(share * 100) + "%";
}

std::string bar(std::string_view css, double x, double y, double width, double height,
                std::string_view title) {
  std::string html =
      fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", css,
                  percent(x), number(y), percent(width), number(std::max(height, 0.0)));
  return title.empty() ? html + "/>"
                       : fmt::format("{}><title>{}</title></rect>", html, escaped(title));
}

std::string text(double x, double y, std::string_view content, std::string_view css,
                 std::string_view anchor) {
  if (anchor.empty()) anchor = x < 0.12 ? "start" : x > 0.88 ? "end" : "middle";
  return fmt::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>", percent(x), number(y),
                     css.empty() ? "" : fmt::format(" class=\"{}\"", css),
                     anchor == "start" ? "" : fmt::format(" text-anchor=\"{}\"", anchor),
                     escaped(content));
}

std::string grid_line(double y, std::string_view label) {
  return fmt::format("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>",
                     number(y)) +
         text(0, y - 3, label, "tick", "start");
}

std::string vertical(std::string_view css, double x, double top, double bottom) {
  return fmt::format("<line class=\"{0}\" x1=\"{1}\" x2=\"{1}\" y1=\"{2}\" y2=\"{3}\"/>", css,
                     percent(x), number(top), number(bottom));
}

std::string line(std::string_view css, std::span<const Point> points, double height) {
  return points.empty() ? "" : stretched(height, css, through(points, 'M'));
}

std::string area(std::string_view css, std::span<const Point> points, double base, double height) {
  if (points.empty()) return "";
  const Point ends[] = {{points.back().x, base}, {points.front().x, base}};
  return stretched(height, css, through(points, 'M') + through(ends, 'L') + "z");
}

std::string band(std::string_view css, std::span<const Point> top, std::span<const Point> bottom,
                 double height) {
  if (top.empty()) return "";
  std::vector<Point> back(bottom.rbegin(), bottom.rend());
  return stretched(height, css, through(top, 'M') + through(back, 'L') + "z");
}

std::string legend_item(std::string_view css, std::string_view label) {
  return fmt::format(
      "<span class=\"key\"><svg aria-hidden=\"true\"><rect class=\"{}\" width=\"100%\" "
      "height=\"100%\"/></svg>{}</span>\n",
      css, escaped(label));
}

std::string chart(const Chart& chart) {
  std::string html = fmt::format("<figure class=\"chart\" id=\"{}\">\n<figcaption><h3>{}</h3>",
                                 chart.id, escaped(chart.title));
  if (!chart.legend.empty()) html += "<div class=\"legend\">" + chart.legend + "</div>";
  html += fmt::format(
      "</figcaption>\n<svg class=\"plot\" role=\"{0}\" aria-labelledby=\"{1}-t {1}-d\" "
      "width=\"100%\" height=\"{2}\"><title id=\"{1}-t\">{3}</title><desc id=\"{1}-d\">{4}</desc>"
      "\n{5}</svg>\n",
      chart.is_interactive ? "group" : "img", chart.id, chart.height, escaped(chart.title),
      escaped(chart.summary), chart.body);
  return html + "<details class=\"data\"><summary>Numbers</summary>\n" + chart.table +
         "</details>\n</figure>\n";
}

std::vector<double> ticks(double high, int count) {
  if (!(high > 0)) return {0};
  const double power = std::pow(10, std::floor(std::log10(high / count)));
  const double ratio = high / count / power;
  const double step = (ratio < 2 ? 1 : ratio < 5 ? 2 : 5) * power;
  std::vector<double> result;
  for (int i = 0; i * step <= high * (1 + 1e-9); ++i) result.push_back(i * step);
  return result;
}

std::string tick_text(double value, Unit unit) {
  if (value == 0) return "0";
  std::string text = quantity(value, unit);
  const std::size_t space = std::min(text.find(' '), text.size());
  if (text.find('.') > space) return text;
  std::size_t end = space;
  while (text[end - 1] == '0') --end;
  if (text[end - 1] == '.') --end;
  return text.erase(end, space - end);
}

}  // namespace warpstep::profiler::html
