// What the parts of the page are written with: escaping, tables, and charts as inline SVG. Widths
// are shares of the page's, heights and text are in pixels: a chart is as readable on a phone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/table.h"

namespace warpstep::profiler::html {

// For text and for attributes in double quotes. What is not UTF-8 becomes U+FFFD.
std::string escaped(std::string_view text);
// Escaped, with numbers and their units kept on one line.
std::string prose(std::string_view text);
// JSON that may stand inside <script>: no '<', no '&'.
std::string script_json(const Json& json);
// The source of a Content-Security-Policy that allows this text alone: 'sha256-...'.
std::string policy_source(std::string_view sha256_hex);

// Text and plain numbers as they are, the rest by quantity(); "-" for none.
std::string cell_text(const Cell& cell, Unit unit);

constexpr std::size_t table_rows = 500;  // of one table in the page; what is more is said so

struct TableStyle {
  bool titled = false;  // with a heading; those of a chart are named by it
  bool filter = false;  // a field that narrows the rows
  int code = -1;        // this column holds names from code
};
// With a caption, scopes, and what sorting and CSV need: keys and base units.
std::string table(const Table& data, const TableStyle& style = {});

// "12.34%" of a share.
std::string percent(double share);
// A rectangle of a chart; x and width are shares, y and height pixels. `title` is shown on hover.
std::string bar(std::string_view css, double x, double y, double width, double height,
                std::string_view title = {});
// Text at a share of the width; anchor: "start", "middle" or "end". By default it depends on x so
// that nothing leaves the chart.
std::string text(double x, double y, std::string_view content, std::string_view css = "",
                 std::string_view anchor = {});
// A line across the chart with its value above it at the left.
std::string grid_line(double y, std::string_view label);
std::string vertical(std::string_view css, double x, double top, double bottom);

struct Point {
  double x = 0, y = 0;  // x: a share; y: pixels
};
// An open line, or an area down to `base` pixels.
std::string line(std::string_view css, std::span<const Point> points, double height);
std::string area(std::string_view css, std::span<const Point> points, double base, double height);
// Of a stack: between two lines with the same x.
std::string band(std::string_view css, std::span<const Point> top, std::span<const Point> bottom,
                 double height);

struct Chart {
  std::string id;
  std::string title;    // what it shows
  std::string summary;  // in a sentence, for who does not see it
  int height = 160;
  std::string body;
  std::string legend;           // HTML below the title
  std::string table;            // the same numbers
  bool is_interactive = false;  // it has links or is changed by the script
};
std::string chart(const Chart& chart);
std::string legend_item(std::string_view css, std::string_view label);

// Ticks at 1, 2 or 5 times a power of ten from 0 to at most `high`: `count` to twice as many.
std::vector<double> ticks(double high, int count = 3);
// quantity() without zeros that say nothing: "10 ms".
std::string tick_text(double value, Unit unit);

std::string section(std::string_view id, std::string_view title, const std::string& lead,
                    const std::string& body);

}  // namespace warpstep::profiler::html
