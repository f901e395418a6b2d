// The page: escaping, tables and charts as inline SVG, and the page's sections. Widths are shares
// of the page's, heights and text are in pixels: a chart is as readable on a phone.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/compare.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler::html {

// For text and for attributes in double quotes. What is not UTF-8 becomes U+FFFD.
std::string escaped(std::string_view text);
// Escaped, with numbers and their units kept on one line.
std::string prose(std::string_view text);
// JSON that may stand inside <script>: no '<', no '&'.
std::string script_json(const Json& json);
// The source of a Content-Security-Policy that allows this text alone: 'sha256-...'.
std::string policy_source(std::string_view sha256_hex);

constexpr std::size_t table_rows = 500;  // of one table in the page; what is more is said so

struct TableStyle {
  bool titled = false;           // with a heading; those of a chart are named by it
  bool filter = false;           // a field that narrows the rows
  int code = -1;                 // this column holds names from code
  std::string_view sorted = {};  // key of the column that the rows are sorted by, largest first
};
// With a caption, scopes, and the keys and base units for sorting and CSV.
std::string table(const Table& data, const TableStyle& style = {});
// A table of analysis/tables.h as the page shows it: some columns of it, or all, without the empty
// ones. A zero, which JSON and CSV keep, means that the row has none of it: "-".
Table on_page(Table data, std::initializer_list<std::string_view> columns = {});

// "12.34%" of a share.
std::string percent(double share);
// A rectangle of a chart; x and width are shares, y and height pixels. `title` is shown on hover.
std::string bar(std::string_view css, double x, double y, double width, double height,
                std::string_view title = {});
// Text at a share of the width; anchor: "start", "middle" or "end". By default it depends on x so
// that nothing leaves the chart.
std::string text(double x, double y, std::string_view content, std::string_view css = "",
                 std::string_view anchor = {});
// A line across the chart with its value left of it, in the gutter of a Chart that has one.
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
  std::string summary;  // in a sentence, for readers who cannot see it
  int height = 160;
  std::string body;
  std::string legend;           // HTML below the title
  std::string table;            // the same numbers
  bool is_interactive = false;  // it has links or is changed by the script
  bool has_gutter = false;      // room at the left for the values of grid lines
};
std::string chart(const Chart& chart);
std::string legend_item(std::string_view css, std::string_view label);

// What a run did besides its steps, for charts over its time.
struct RunMark {
  Interval time;
  bool is_evaluation = false;  // else a checkpoint
};
// Of each kind and of windows, spread evenly over all of them: pages stay small.
inline constexpr std::size_t most_marks = 200;
std::vector<RunMark> run_marks_of(const Session& session);  // in order
std::vector<Window> marked_windows(const Session& session);
// Items of a legend for windows and for the marks that the session has.
std::string marks_legend(const Session& session);

// Ticks at 1, 2 or 5 times a power of ten from 0 to at most `high`: `count` to twice as many.
std::vector<double> ticks(double high, int count = 3);
// quantity() without zeros that say nothing: "10 ms".
std::string tick_text(double value, Unit unit);

std::string section(std::string_view id, std::string_view title, const std::string& lead,
                    const std::string& body);

}  // namespace warpstep::profiler::html

namespace warpstep::profiler::html::page {

// The page's style and script, from page/report.css, page/report.js and page/patterns.svg: the
// build writes them into a source file (profiler/export/page/embed.cmake).

extern const std::string_view style, script;
extern const std::string_view patterns;  // SVG that distinguishes what colours alone might not
extern const std::string_view style_sha256, script_sha256;  // of these bytes, in hexadecimal

}  // namespace warpstep::profiler::html::page

namespace warpstep::profiler::html {

// The sections of the page, in its order; each empty when the session has nothing for it.

std::string verdict_part(const Session& session, const Analysis& analysis);
std::string mean_part(const Analysis& analysis);
std::string run_part(const Analysis& analysis);
std::string steps_part(const Session& session, const Analysis& analysis);
std::string findings_part(const Session& session, const Analysis& analysis);
std::string cards_part(const Session& session, const Analysis& analysis);
std::string layers_part(const Session& session, const Analysis& analysis);
// The tree of modules as nested rows that fold; empty if no call has a time.
std::string modules_tree(const Work& work);
std::string roofline(const Work& work);
std::string kernels_part(const Analysis& analysis);
std::string ops_part(const Analysis& analysis);
std::string loader_part(const Analysis& analysis);
std::string memory_part(const Analysis& analysis);
std::string machine_part(const Session& session, const Analysis& analysis);
std::string path_part(const Analysis& analysis);
std::string comparison_part(const Comparison& comparison);
std::string stamp_part(const Session& session);

// The class that colours a category: "c-kernel"; and a bound of the critical path alike.
std::string category_class(Category category);
std::string bound_class(const std::string& bound);

// What each thread, stream and queue did in a recorded step, for the page.

constexpr std::size_t bars_per_lane = 500;     // of one step; neighbours are merged to stay below
constexpr std::size_t bars_per_page = 60'000;  // about 1.2 MB: further steps have no lanes

constexpr std::size_t names_per_mix = 4;       // of a merged bar; the others are only counted
constexpr std::size_t mixes_per_page = 2'000;  // of several names; later ones are only counted

struct LaneBar {
  std::uint64_t begin_ns = 0, end_ns = 0;  // from the step's begin
  std::uint32_t name = 0;                  // into Lanes::names
  std::uint32_t css = 0;                   // into Lanes::classes
  std::uint32_t row = 0;                   // nested ones are below
  // Of several bars merged into one, with the gaps between them:
  std::uint32_t mix = ~0U;   // into Lanes::mixes; ~0: not merged
  std::uint64_t sum_ns = 0;  // their time, without the gaps
};

struct LaneTotal {
  std::uint32_t name = 0;  // into Lanes::names
  std::uint64_t bars = 0, ns = 0;
};

// Names and how many bars of each, most first. The name ~0 stands for all that are not listed.
using LaneMix = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

struct LaneStep {
  std::uint64_t step = 0, length_ns = 0;
  std::vector<std::vector<LaneBar>> bars;                      // by lane
  std::vector<std::vector<LaneTotal>> totals;                  // by lane, before bars were merged
  std::vector<std::pair<std::uint64_t, std::uint64_t>> queue;  // ns from the begin, batches ready
};

struct Lanes {
  std::vector<std::string> lanes;    // "main", "loader 0", "stream 7"
  std::vector<std::uint32_t> rows;   // of each lane, at least 1
  std::vector<std::string> names;    // of bars
  std::vector<LaneMix> mixes;        // what merged bars stand for, each once
  std::vector<std::string> classes;  // that colour them
  std::vector<std::string> kinds;    // what a class stands for, for the legend
  std::vector<LaneStep> steps;       // those of the windows, in order
  std::uint64_t most_ready = 0;      // batches
  std::size_t left_out = 0;          // steps beyond the cap
};
// `preferred`: numbers of the steps that have lanes before all others where not all can have them.
Lanes find_lanes(const Session& session, const LoaderView& loader,
                 const std::set<std::uint64_t>& preferred = {});

// Times are in units of 100 ns, those of totals in ns. A bar is its row, class, name, begin after
// the end of the bar before, and length. A merged one has -1 - mix for a name, and a sixth number:
// its length less its sum. Totals are left out for a name that has one bar, and that one unmerged.
Json to_json(const Lanes& lanes);
// The chart of one of the steps; the script draws the others in its place.
std::string lanes_chart(const Lanes& lanes, std::size_t step);

}  // namespace warpstep::profiler::html
