#include "tools/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <ranges>
#include <span>
#include <utility>

#include "engine/core/file.h"
#include "tools/canvas.h"

namespace warpstep {
namespace {

// Blue and vermilion of Okabe and Ito's palette, distinct with any kind of colour vision; marker
// and dash distinguish them in grey, too.
constexpr Color train_color = {0.000, 0.447, 0.698}, validation_color = {0.835, 0.369, 0.000};
constexpr Color ink = {0.13, 0.13, 0.13}, faint_ink = {0.42, 0.42, 0.42}, grid = {0.90, 0.90, 0.90};

constexpr int pixels_per_unit = 2;

struct Series {
  const char* name;
  std::span<const CurvePoint> points;
  Color color;
  Mark mark;
};

struct Axis {
  double low = 0, high = 1, step = 0.2;

  double place(double value) const { return (value - low) / (high - low); }  // 0..1
};

struct Panel {
  const char* title;
  double left, top, width, height;
  bool percent;
  std::vector<Series> series;  // the last is drawn on top
};

// The axis around [low, high] whose ticks are 1, 2 or 5 times a power of ten, about five of them.
Axis round_axis(double low, double high) {
  const double span = high > low ? high - low : std::max(std::abs(high) * 0.5, 1e-9);
  const double power = std::pow(10, std::floor(std::log10(span / 5)));
  const double ratio = span / 5 / power;
  const double step = (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10) * power;
  Axis axis = {std::floor(low / step) * step, std::ceil(high / step) * step, step};
  if (axis.high <= axis.low) axis.high = axis.low + step;
  return axis;
}

bool finite(const CurvePoint& point) {
  return std::isfinite(point.epoch) && std::isfinite(point.value);
}

Axis epoch_axis(const CurveData& data) {
  double last = 0;
  for (const auto* points : {&data.step_loss, &data.train_loss, &data.train_accuracy,
                             &data.validation_loss, &data.validation_accuracy})
    for (const CurvePoint& point : *points)
      if (std::isfinite(point.epoch)) last = std::max(last, point.epoch);
  if (last <= 0) last = 1;
  const double step = round_axis(0, last).step;
  return {0, last, last < 1 ? step : std::max(1.0, step)};
}

// Beyond this a loss is as good as infinite, and axes are computed without overflow.
constexpr double huge = 1e100;

Axis value_axis(const Panel& panel) {
  std::vector<double> values;
  for (const Series& series : panel.series) {
    std::vector<double> own;
    for (const CurvePoint& point : series.points)
      if (finite(point)) own.push_back(std::clamp(point.value, -huge, huge));
    std::ranges::sort(own);
    // One step in two hundred may leave the panel: a single bad batch must not flatten the rest.
    const std::size_t cut = series.mark == Mark::thin ? own.size() / 200 : 0;
    if (!own.empty()) values.insert(values.end(), {own[cut], own[own.size() - 1 - cut]});
  }
  if (values.empty()) return {};
  const auto [low, high] = std::ranges::minmax(values);
  // From 0 on when that costs less than half of the height: ratios can be seen then.
  Axis axis = round_axis(low >= 0 && low < high / 2 ? 0 : low, high);
  if (panel.percent) axis = {std::max(axis.low, 0.0), std::min(axis.high, 1.0), axis.step};
  return axis.high > axis.low ? axis : Axis{};
}

// As many digits as the ticks need to differ.
std::string tick_text(double value, double step, bool percent) {
  const double scale = percent ? 100 : 1;
  if (std::abs(value) >= 1e6 || step < 1e-6) return fmt::format("{:.3g}", value);
  const int digits =
      std::clamp(static_cast<int>(std::ceil(-std::log10(step * scale) - 1e-9)), 0, 9);
  return fmt::format("{:.{}f}{}", value * scale + 0.0, digits, percent ? " %" : "");
}

void take_pen(const Canvas& canvas, const Series& series) {
  const bool thin = series.mark == Mark::thin;
  canvas.color(series.color, thin ? 0.35 : 1);
  canvas.pen(thin ? 0.8 : 2, series.mark == Mark::square);
}

void draw_axes(const Canvas& canvas, const Panel& panel, const Axis& epochs, const Axis& values) {
  const double bottom = panel.top + panel.height, right = panel.left + panel.width;
  canvas.pen(1);
  const int rows = static_cast<int>(std::floor((values.high - values.low) / values.step + 1e-9));
  for (int i = 0; i <= rows; ++i) {
    const double value = values.low + i * values.step;
    const double y = std::round(bottom - values.place(value) * panel.height) + 0.5;
    canvas.color(grid);
    canvas.line(panel.left, y, right, y);
    canvas.color(faint_ink);
    canvas.text(panel.left - 8, y + 4, tick_text(value, values.step, panel.percent), 12, 1);
  }
  const int columns = static_cast<int>(std::floor(epochs.high / epochs.step + 1e-9));
  for (int i = 0; i <= columns; ++i) {
    const double x = std::round(panel.left + epochs.place(i * epochs.step) * panel.width) + 0.5;
    canvas.color(faint_ink);
    canvas.line(x, bottom, x, bottom + 4);
    canvas.text(x, bottom + 18, tick_text(i * epochs.step, epochs.step, false), 12, 0.5);
  }
  canvas.line(panel.left, bottom + 0.5, right, bottom + 0.5);
  canvas.text(panel.left + panel.width / 2, bottom + 38, "epochs of training", 12, 0.5);
}

// cairo's time rises with the square of the points that lie above each other: 160,000 take a
// minute.
void draw_series(const Canvas& canvas, const Panel& panel, const Series& series, const Axis& epochs,
                 const Axis& values) {
  const std::vector<CurvePoint> points = visible_points(
      series.points, epochs.high, static_cast<std::size_t>(panel.width * pixels_per_unit));
  const auto x = [&](const CurvePoint& p) {
    return panel.left + epochs.place(p.epoch) * panel.width;
  };
  const auto y = [&](const CurvePoint& p) {
    return panel.top + (1 - std::clamp(values.place(std::clamp(p.value, -huge, huge)), -1.0, 2.0)) *
                           panel.height;
  };
  cairo_save(canvas.get());
  cairo_rectangle(canvas.get(), panel.left - 5, panel.top - 5, panel.width + 10, panel.height + 10);
  cairo_clip(canvas.get());
  take_pen(canvas, series);
  bool down = false;
  for (const CurvePoint& point : points) {
    if (finite(point)) (down ? cairo_line_to : cairo_move_to)(canvas.get(), x(point), y(point));
    down = finite(point);
  }
  cairo_stroke(canvas.get());
  canvas.color(series.color);
  const bool lone = series.points.size() == 1;  // has no line, so it is marked in any case
  for (const CurvePoint& point : points)
    if (finite(point))
      canvas.marker(x(point), y(point),
                    lone && series.mark == Mark::thin ? Mark::circle : series.mark);
  cairo_restore(canvas.get());
}

// Names of the series with their lines, ending at the panel's right edge.
void draw_legend(const Canvas& canvas, const Panel& panel) {
  double right = panel.left + panel.width;
  const double y = panel.top - 14;
  for (const Series& series : panel.series | std::views::reverse) {
    if (series.points.empty()) continue;
    canvas.color(ink);
    right -= canvas.text(right, y, series.name, 12, 1) + 6;
    take_pen(canvas, series);
    canvas.line(right - 24, y - 4, right, y - 4);
    canvas.marker(right - 12, y - 4, series.mark);
    right -= 24 + 16;
  }
}

void draw_panel(const Canvas& canvas, const Panel& panel, const Axis& epochs) {
  const Axis values = value_axis(panel);
  draw_axes(canvas, panel, epochs, values);
  std::ptrdiff_t lost = 0, drawn = 0;
  for (const Series& series : panel.series) {
    draw_series(canvas, panel, series, epochs, values);
    const auto good = std::ranges::count_if(series.points, finite);
    drawn += good;
    lost += static_cast<std::ptrdiff_t>(series.points.size()) - good;
  }
  canvas.color(ink);
  canvas.text(panel.left, panel.top - 14, panel.title, 14, 0, true);
  draw_legend(canvas, panel);
  const std::string note = lost > 0     ? fmt::format("{} points are not finite", lost)
                           : drawn == 0 ? "nothing was measured"
                                        : "";
  canvas.color(validation_color);
  canvas.text(panel.left + panel.width, panel.top + panel.height + 38, note, 12, 1);
}

std::string final_figures(const CurveData& data) {
  std::string text;
  const auto add = [&](const char* name, const std::vector<CurvePoint>& points, bool percent) {
    if (points.empty()) return;
    text += text.empty() ? "" : "     ";
    text += percent ? fmt::format("{} {:.2f} %", name, 100 * points.back().value)
                    : fmt::format("{} {:.4f}", name, points.back().value);
  };
  add("validation accuracy", data.validation_accuracy, true);
  add("validation loss", data.validation_loss, false);
  add("train accuracy", data.train_accuracy, true);
  add("train loss", data.train_loss, false);
  return text.empty() ? "no epoch is complete" : "At the end:  " + text;
}

// Appends what is seen of the points of one column.
void add_visible(std::span<const CurvePoint> column, std::vector<CurvePoint>& visible) {
  const auto by_value = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  std::vector<CurvePoint> good;
  std::ranges::copy_if(column, std::back_inserter(good), finite);
  if (good.empty()) return visible.push_back(column.front());
  const auto [low, high] = std::minmax_element(good.begin(), good.end(), by_value);
  std::array seen{good.begin(), low, high, good.end() - 1};
  std::ranges::sort(seen);
  const auto end = std::unique(seen.begin(), seen.end());
  for (auto point = seen.begin(); point != end; ++point) visible.push_back(**point);
}

}  // namespace

std::vector<CurvePoint> visible_points(std::span<const CurvePoint> points, double last,
                                       std::size_t columns) {
  if (points.size() <= 4 * columns) return {points.begin(), points.end()};
  const auto column_of = [&](const CurvePoint& point) {
    return std::floor(std::clamp(point.epoch / last, 0.0, 1.0) * static_cast<double>(columns - 1));
  };
  std::vector<CurvePoint> visible;
  for (std::size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    double column = -1;
    for (; end < points.size(); ++end) {
      if (!std::isfinite(points[end].epoch)) continue;
      if (column >= 0 && column_of(points[end]) != column) break;
      column = column_of(points[end]);
    }
    add_visible(points.subspan(begin, end - begin), visible);
  }
  return visible;
}

void draw_curves(const CurveData& data, const std::filesystem::path& png) {
  const Canvas canvas(1200, 500, pixels_per_unit);
  canvas.color(ink);
  const std::string on = data.data.empty() ? "" : " on " + data.data;
  canvas.text(24, 34, data.model + on, 19, 0, true);
  canvas.color(faint_ink);
  canvas.text(24, 57, final_figures(data), 13);

  const Axis epochs = epoch_axis(data);
  draw_panel(canvas,
             {.title = "Loss",
              .left = 64,
              .top = 108,
              .width = 516,
              .height = 330,
              .percent = false,
              .series = {{"train, steps", data.step_loss, train_color, Mark::thin},
                         {"train, epoch means", data.train_loss, train_color, Mark::circle},
                         {"validation", data.validation_loss, validation_color, Mark::square}}},
             epochs);
  draw_panel(canvas,
             {.title = "Accuracy",
              .left = 664,
              .top = 108,
              .width = 510,
              .height = 330,
              .percent = true,
              .series = {{"train, epoch means", data.train_accuracy, train_color, Mark::circle},
                         {"validation", data.validation_accuracy, validation_color, Mark::square}}},
             epochs);
  write_atomically(png, canvas.png());
}

}  // namespace warpstep
