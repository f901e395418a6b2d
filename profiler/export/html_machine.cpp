// The page's sections on the environment, memory, the machine and the critical path.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "engine/core/json_text.h"
#include "profiler/analysis/tables.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

namespace {

std::string value_html(const Json& value, int depth);

std::string list(const Json& object, int depth) {
  std::string html = "<dl class=\"stamp\">\n";
  for (const auto& [key, value] : object.items())
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(key),
                        value_html(value, depth + 1));
  return html + "</dl>\n";
}

bool is_plain(const Json& array) {
  for (const Json& item : array)
    if (item.is_structured()) return false;
  return true;
}

std::string value_html(const Json& value, int depth) {
  constexpr int deepest = 8;
  if (depth > deepest || !value.is_structured())
    return escaped(value.is_string() ? value.get<std::string>() : printed(value));
  if (value.is_object()) return list(value, depth);
  std::string html;
  if (is_plain(value)) {
    for (const Json& item : value)
      html += fmt::format("{}{}", html.empty() ? "" : ", ", value_html(item, depth + 1));
    return html.empty() ? "none" : html;
  }
  html = "<ol>\n";
  for (const Json& item : value) html += "<li>" + value_html(item, depth + 1) + "</li>\n";
  return html + "</ol>\n";
}

Table counts(const Session& session) {
  const auto whole = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  return {.key = "counts",
          .title = "What the session holds",
          .columns = {{"what", "what"}, {"count", "count", Unit::count}},
          .rows = {{"steps", whole(session.steps.size())},
                   {"windows with spans", whole(session.windows.size())},
                   {"threads", whole(session.threads.size())},
                   {"spans", whole(session.spans.size())},
                   {"device activities", whole(session.activities.size())},
                   {"samples of the machine", whole(session.samples.size())},
                   {"names", whole(session.names.size())},
                   {"clock readings", whole(session.clocks.size())},
                   {"entries lost", whole(session.losses.entries)},
                   {"activities lost", whole(session.losses.activities)},
                   {"activities without times", whole(session.losses.without_times)},
                   {"bytes cut at the file's end", whole(session.losses.cut_bytes)},
                   {"bytes of damaged chunks", whole(session.losses.damaged_bytes)}}};
}

Table windows(const Session& session) {
  Table table{.key = "windows",
              .title = "Recorded windows",
              .columns = {{"first_step", "from step"},
                          {"last_step", "to step"},
                          {"time_ns", "length", Unit::ns},
                          {"device", "device activities"},
                          {"complete", "complete"}}};
  for (const Window& window : session.windows) {
    const bool has_activities = window.deep != 0 && window.cut == 0;
    table.rows.push_back(
        {static_cast<std::int64_t>(window.first_step), static_cast<std::int64_t>(window.last_step),
         static_cast<std::int64_t>(window.end_ns - window.begin_ns), has_activities ? "yes" : "no",
         window.cut != 0        ? "cut off"
         : window.complete != 0 ? "yes"
                                : "no"});
  }
  return table;
}

}  // namespace

std::string stamp_part(const Session& session) {
  std::string body;
  if (session.stamp.is_object() && !session.stamp.empty()) body += list(session.stamp, 0);
  if (session.loader.is_object() && !session.loader.empty())
    body += "<h3>Loader</h3>\n" + list(session.loader, 0);
  if (session.peaks.is_object() && !session.peaks.empty())
    body += "<h3>Measured peaks</h3>\n" + list(session.peaks, 0);
  if (!session.windows.empty()) body += table(windows(session), {.titled = true});
  body += table(counts(session), {.titled = true});
  if (!session.notes.empty()) {
    body += "<h3>Notes of the recorder</h3>\n<ul>\n";
    for (const std::string& note : session.notes) body += "<li>" + escaped(note) + "</li>\n";
    body += "</ul>\n";
  }
  return section("stamp", "Environment and recording", "", body);
}

namespace {

constexpr double memory_base = 220, memory_top = 18;
constexpr std::size_t kind_colours = 10;

std::string kind_class(std::size_t kind) {
  return fmt::format("m{}", kind % kind_colours);
}

Table curve_table(const MemoryTimeline& memory) {
  Table table{
      .key = "memory_by_call", .title = "Bytes alive at each call", .columns = {{"call", "call"}}};
  for (const std::string& kind : memory.kinds)
    table.columns.push_back({kind + "_bytes", kind, Unit::bytes});
  const std::size_t calls = memory.by_kind.empty() ? 0 : memory.by_kind.front().size();
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<Cell> row{static_cast<std::int64_t>(call + 1)};
    for (const auto& bytes : memory.by_kind) {
      row.emplace_back();
      if (call < bytes.size()) row.back() = static_cast<std::int64_t>(bytes[call]);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Steps between calls: what is alive does not change within one.
std::vector<Point> outline(const std::vector<double>& bytes, double highest) {
  std::vector<Point> points;
  const double calls = static_cast<double>(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double y = memory_base - bytes[i] / highest * (memory_base - memory_top);
    points.push_back({static_cast<double>(i) / calls, y});
    points.push_back({static_cast<double>(i + 1) / calls, y});
  }
  return points;
}

std::string memory_chart(const MemoryTimeline& memory) {
  if (memory.by_kind.empty() || memory.by_kind.front().empty()) return "";
  const std::size_t calls = memory.by_kind.front().size();
  std::vector<double> sum(calls, 0);
  for (const auto& bytes : memory.by_kind)
    for (std::size_t i = 0; i < std::min(calls, bytes.size()); ++i)
      sum[i] += static_cast<double>(bytes[i]);
  const double highest = std::max(std::ranges::max(sum), 1.0);
  std::string body, legend;
  std::vector<double> under(calls, 0);
  for (std::size_t kind = 0; kind < memory.by_kind.size(); ++kind) {
    std::vector<double> over = under;
    for (std::size_t i = 0; i < std::min(calls, memory.by_kind[kind].size()); ++i)
      over[i] += static_cast<double>(memory.by_kind[kind][i]);
    if (over != under) {
      body += band(kind_class(kind), outline(over, highest), outline(under, highest), memory_base);
      legend += legend_item(kind_class(kind), kind < memory.kinds.size() ? memory.kinds[kind] : "");
    }
    under = std::move(over);
  }
  for (const double share : {0.5, 1.0})
    body += grid_line(memory_base - share * (memory_base - memory_top),
                      quantity(share * highest, Unit::bytes));
  const double peak = (static_cast<double>(memory.peak_call) + 0.5) / static_cast<double>(calls);
  body += vertical("l-mark", peak, memory_top - 4, memory_base);
  body += text(peak, memory_base + 16, fmt::format("peak, call {}", memory.peak_call + 1), "tick");
  if (peak > 0.3) body += text(0, memory_base + 16, "call 1", "tick");
  if (peak < 0.7) body += text(1, memory_base + 16, fmt::format("call {}", calls), "tick");
  return chart(
      {.id = "memory-curve",
       .title = "Memory alive over the calls of a step",
       .summary = fmt::format("Stacked by kind; the peak is at call {} of {}, {} with what "
                              "lives outside the arena.",
                              memory.peak_call + 1, calls, quantity(highest, Unit::bytes)),
       .height = static_cast<int>(memory_base) + 22,
       .body = body,
       .legend = legend,
       .table = table(curve_table(memory)),
       .has_gutter = true});
}

}  // namespace

std::string memory_part(const Analysis& analysis) {
  const MemoryTimeline& memory = analysis.memory;
  if (memory.by_kind.empty() && memory.at_peak.empty()) return "";
  const auto bytes = [](std::uint64_t count) {
    return quantity(static_cast<double>(count), Unit::bytes);
  };
  const std::string lead = prose(fmt::format(
      "The arena reserves {}, of which {} are alive at the peak ({} never used then); {} live "
      "outside it.",
      bytes(memory.arena_bytes), bytes(memory.peak_bytes),
      quantity(memory.fragmentation, Unit::share), bytes(memory.persistent_bytes)));
  std::string body = memory_chart(memory);
  const Table owners = memory_table(analysis);
  if (!owners.rows.empty())
    body += table(with_columns(owners, {"name", "bytes", "kind", "layer", "first_call", "last_call",
                                        "at_peak"}),
                  {.titled = true, .filter = true, .code = 0});
  return section("memory", "Memory", lead, body);
}

namespace {

constexpr std::size_t sample_points = 300;
constexpr double lane_height = 66, lane_top = 16;

struct Metric {
  std::string title;
  std::vector<std::vector<std::pair<double, double>>> lines;  // (ns, value); each CPU one
  std::vector<std::string> names;                             // of the lines
};

// "process rss bytes" is shown in MiB, "sm clock MHz" as it is.
std::string value_text(const std::string& name, double value) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  if (ends("bytes/s")) return quantity(value, Unit::per_second_bytes);
  if (ends(" bytes")) return quantity(value, Unit::bytes);
  if (ends(" %")) return fmt::format("{:.0f} %", value);
  const std::size_t unit = name.rfind(' ');
  std::string number =
      std::abs(value) < 1000 ? fmt::format("{:.3g}", value) : quantity(value, Unit::count);
  for (const std::string_view known : {" W", " C", " MHz"})
    if (ends(known)) return number + " " + (known == " C" ? "\u00b0C" : name.substr(unit + 1));
  return number;
}

std::string title_of(const std::string& name) {
  for (const std::string_view unit : {" bytes/s", " bytes", " %", " W", " C", " MHz"})
    if (name.ends_with(unit)) return name.substr(0, name.size() - unit.size());
  return name;
}

bool is_one_cpu(const std::string& name) {
  return name.starts_with("cpu ") && name.size() > 5 && name[4] >= '0' && name[4] <= '9';
}

// CPUs share a chart, and so do threads. Empty: no chart, as it is the base of another figure.
std::string chart_of(const std::string& name) {
  if (is_one_cpu(name)) return "each cpu %";
  for (const char* const of : {" run delay %", " on cpu %"})
    if (name.ends_with(of)) return std::string("each thread") + of;
  if (name.starts_with("program ")) return "each program cpu %";
  constexpr std::array<std::string_view, 4> bases{"kernels threads", "kernels cpus",
                                                  "cpu periods/s", "other processes"};
  const bool is_base = std::ranges::find(bases, name) != bases.end();
  return is_base || name.starts_with("traced by ") ? "" : name;
}

// By name in the order of the first samples.
std::vector<std::pair<std::string, Metric>> metrics_of(const Session& session) {
  std::vector<std::pair<std::string, Metric>> metrics;
  std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> places;  // metric, line
  for (const Sample& sample : session.samples) {
    auto place = places.find(sample.name);
    if (place == places.end()) {
      const std::string& name = session.name(sample.name);
      const std::string shown = chart_of(name);
      if (shown.empty()) continue;
      auto metric = std::ranges::find(metrics, shown, &std::pair<std::string, Metric>::first);
      if (metric == metrics.end())
        metric = metrics.insert(metrics.end(), {shown, {title_of(shown), {}, {}}});
      metric->second.lines.emplace_back();
      metric->second.names.push_back(name);
      place =
          places
              .emplace(sample.name, std::pair{static_cast<std::size_t>(metric - metrics.begin()),
                                              metric->second.lines.size() - 1})
              .first;
    }
    metrics[place->second.first].second.lines[place->second.second].emplace_back(
        static_cast<double>(sample.at_ns), sample.value);
  }
  return metrics;
}

// A scale that starts at 0, but for what never comes near it: clocks, temperatures, memory left.
std::pair<double, double> scale_of(const std::string& name, const Metric& metric) {
  double low = 1e300, high = -1e300;
  for (const auto& line : metric.lines)
    for (const auto& [at, value] : line) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  if (name.ends_with(" %")) return {0, std::max(high, 100.0)};
  if (low < 0.7 * high) low = 0;
  if (high > low) return {low, high};
  return high > 0 ? std::pair{0.0, high} : std::pair{high, high + 1};  // it never changed
}

Table metric_table(const std::string& name, const Metric& metric, double first) {
  Table table{.key = name,
              .title = metric.title,
              .columns = {{"after_ns", "after", Unit::ns}, {"value", name}}};
  const bool has_names = metric.lines.size() > 1;
  if (has_names) table.columns.insert(table.columns.begin(), {"of", "of"});
  for (std::size_t n = 0; n < metric.lines.size(); ++n) {
    const auto& line = metric.lines[n];
    const std::size_t every = (line.size() + sample_points - 1) / sample_points;
    for (std::size_t i = 0; i < line.size(); i += every) {
      table.rows.push_back({line[i].first - first, line[i].second});
      if (has_names) table.rows.back().insert(table.rows.back().begin(), metric.names[n]);
    }
  }
  return table;
}

bool is_zero(const Metric& metric) {
  return std::ranges::all_of(metric.lines, [](const auto& line) {
    return std::ranges::all_of(line, [](const auto& at) { return at.second == 0; });
  });
}

// Windows, evaluations and checkpoints behind a curve over the run's time.
std::string time_marks(const Session& session, double first, double range) {
  const auto across = [&](std::uint64_t ns) {
    return std::clamp((static_cast<double>(ns) - first) / range, 0.0, 1.0);
  };
  std::string html;
  const auto add = [&](const char* css, const Interval& time, const char* what) {
    const double begin = across(time.begin_ns), end = across(time.end_ns);
    if (end > begin)
      html += bar(css, begin, lane_top, std::max(end - begin, 0.003), lane_height - lane_top, what);
  };
  for (const Window& window : marked_windows(session))
    add("window", {window.begin_ns, window.end_ns}, "steps recorded with spans");
  for (const RunMark& mark : run_marks_of(session))
    add(mark.is_evaluation ? "evaluation" : "checkpoint", mark.time,
        mark.is_evaluation ? "evaluation" : "checkpoint");
  return html;
}

// The mean over time: a sample stands for the time since the one before.
double mean_of(const Metric& metric) {
  double sum = 0, ns = 0, plain = 0, count = 0;
  for (const auto& line : metric.lines)
    for (std::size_t i = 0; i < line.size(); ++i) {
      const double covers = i > 0 ? line[i].first - line[i - 1].first : 0;
      sum += covers * line[i].second;
      ns += covers;
      plain += line[i].second;
      ++count;
    }
  return ns > 0 ? sum / ns : plain / std::max(1.0, count);
}

std::string small_chart(const std::string& name, const Metric& metric, double first, double range,
                        int number, const std::string& marks) {
  const auto [low, high] = scale_of(name, metric);
  std::string body;
  double most = -1e300;
  for (const auto& line : metric.lines) {
    std::vector<Point> points;
    const std::size_t every = (line.size() + sample_points - 1) / sample_points;
    for (std::size_t i = 0; i < line.size(); ++i) {
      most = std::max(most, line[i].second);
      if (i % every == 0)
        points.push_back(
            {(line[i].first - first) / range,
             lane_height - (line[i].second - low) / (high - low) * (lane_height - lane_top)});
    }
    if (points.size() == 1)
      body += fmt::format("<circle class=\"dot\" cx=\"{}\" cy=\"{:.1f}\" r=\"3\"/>",
                          percent(points[0].x), points[0].y);
    body += html::line(metric.lines.size() > 1 ? "l-one" : "l-main", points, lane_height);
  }
  const std::string mean = value_text(name, mean_of(metric));
  return chart({.id = fmt::format("metric-{}", number),
                .title = metric.title,
                .summary = fmt::format("mean {}, highest {}", mean, value_text(name, most)),
                .height = static_cast<int>(lane_height) + 16,
                .body = marks + body + grid_line(lane_top, value_text(name, high)) +
                        grid_line(lane_height, value_text(name, low)),
                .legend = fmt::format("<span>mean {}, highest {}</span>", escaped(mean),
                                      escaped(value_text(name, most))),
                .table = table(metric_table(name, metric, first)),
                .has_gutter = true});
}

std::string device_timeline(const DeviceMetrics& device) {
  if (device.timeline.size() < 2) return "";
  std::string body;
  Table data{.key = "utilisation",
             .title = "Kernels running over time",
             .columns = {{"after_ns", "after", Unit::ns}, {"share", "utilisation", Unit::share}}};
  const double count = static_cast<double>(device.timeline.size());
  for (std::size_t i = 0; i < device.timeline.size(); ++i) {
    const double tall = std::clamp(device.timeline[i], 0.0, 1.0) * (lane_height - lane_top);
    body += bar("c-kernel", static_cast<double>(i) / count, lane_height - tall, 0.9 / count, tall);
    data.rows.push_back(
        {static_cast<double>(i) * static_cast<double>(device.bucket_ns), device.timeline[i]});
  }
  return chart({.id = fmt::format("utilisation-{}", device.device),
                .title = fmt::format("{} {}: kernels running", device.name, device.device),
                .summary = fmt::format("The share of each {} in which some kernel ran.",
                                       quantity(static_cast<double>(device.bucket_ns), Unit::ns)),
                .height = static_cast<int>(lane_height) + 2,
                .body = body + grid_line(lane_top, "100 %") + grid_line(lane_height, "0"),
                .table = table(data),
                .has_gutter = true});
}

std::string edges_chart(const CriticalPath& path) {
  if (path.edges.empty()) return "";
  const double first = static_cast<double>(path.edges.front().begin_ns);
  const double range = std::max(static_cast<double>(path.edges.back().end_ns) - first, 1.0);
  std::string body, legend;
  Table data{.key = "path_edges",
             .title = fmt::format("The path of step {}", path.step),
             .columns = {{"what", "what"},
                         {"bound", "bound by"},
                         {"begin_ns", "from", Unit::ns},
                         {"time_ns", "time", Unit::ns}}};
  for (const PathEdge& edge : path.edges) {
    const double begin = static_cast<double>(edge.begin_ns) - first;
    const double ns = static_cast<double>(edge.end_ns - edge.begin_ns);
    body += bar(bound_class(edge.bound), begin / range, 0, ns / range, 30,
                fmt::format("{} ({}), {}", edge.what, edge.bound, quantity(ns, Unit::ns)));
    data.rows.push_back({edge.what, edge.bound, begin, ns});
  }
  for (const PathShare& share : path.shares)
    if (share.bound != "core wait") legend += legend_item(bound_class(share.bound), share.bound);
  for (const double at : ticks(range))
    body += text(at / range, 46, tick_text(at, Unit::ns), "tick");
  return chart({.id = "path-edges",
                .title = fmt::format("Step {}, from its begin to its end", path.step) +
                         (path.core_wait_ns > 0 ? fmt::format("; in all of it, {} without a core",
                                                              quantity(path.core_wait_ns, Unit::ns))
                                                : ""),
                .summary = "What the step waited for at each moment.",
                .height = 50,
                .body = body,
                .legend = legend,
                .table = table(data, {.code = 0})});
}

// most_marks of them, the first and the last included.
template <class Mark>
std::vector<Mark> spread(const std::vector<Mark>& all) {
  if (all.size() <= most_marks) return all;
  std::vector<Mark> some;
  for (std::size_t i = 0; i < most_marks; ++i)
    some.push_back(all[i * (all.size() - 1) / (most_marks - 1)]);
  return some;
}

}  // namespace

// From the run's phases; from spans where a session has none.
std::vector<RunMark> run_marks_of(const Session& session) {
  std::vector<RunMark> evaluations, checkpoints;
  const auto add = [&](const auto& entry) {
    const std::string& name = session.name(entry.name);
    if (name == "evaluation") evaluations.push_back({{entry.begin_ns, entry.end_ns}, true});
    if (name == "checkpoint") checkpoints.push_back({{entry.begin_ns, entry.end_ns}, false});
  };
  for (const auto& phase : session.phases) add(phase);
  if (session.phases.empty())
    for (const Span& span : session.spans)
      if (session.kind(span) == Kind::range) add(span);
  std::vector<RunMark> marks = spread(evaluations);
  std::ranges::copy(spread(checkpoints), std::back_inserter(marks));
  std::ranges::stable_sort(marks, {}, [](const RunMark& mark) { return mark.time.begin_ns; });
  return marks;
}

std::vector<Window> marked_windows(const Session& session) {
  return spread(session.windows);
}

std::string marks_legend(const Session& session) {
  const std::vector<RunMark> marks = run_marks_of(session);
  std::string html;
  if (!session.windows.empty()) html += legend_item("window", "recorded with spans");
  if (std::ranges::any_of(marks, &RunMark::is_evaluation))
    html += legend_item("evaluation", "evaluation");
  if (!std::ranges::all_of(marks, &RunMark::is_evaluation))
    html += legend_item("checkpoint", "checkpoint");
  return html;
}

std::string bound_class(const std::string& bound) {
  if (bound == "kernel") return category_class(Category::kernel);
  if (bound == "launch") return category_class(Category::runtime);
  if (bound == "idle") return category_class(Category::other);
  if (bound == "core wait") return category_class(Category::core_wait);
  for (const std::string_view same : {"copy", "data", "sync", "cpu"})
    if (bound == same) return fmt::format("c-{}", bound);
  return category_class(Category::other);
}

std::string machine_part(const Session& session, const Analysis& analysis) {
  std::string body;
  for (const DeviceMetrics& device : analysis.devices) body += device_timeline(device);
  const auto metrics = metrics_of(session);
  if (!session.samples.empty()) {
    const double first = static_cast<double>(session.samples.front().at_ns);
    const double range = std::max(static_cast<double>(session.samples.back().at_ns) - first, 1.0);
    const std::string marks = time_marks(session, first, range);
    std::string zeros;
    int number = 0;
    for (const auto& [name, metric] : metrics) {
      if (is_zero(metric))
        zeros += (zeros.empty() ? "" : ", ") + metric.title;
      else
        body += small_chart(name, metric, first, range, ++number, marks);
    }
    const std::string legend = marks_legend(session);
    body = (legend.empty() ? "" : fmt::format("<div class=\"legend\">{}</div>\n", legend)) +
           fmt::format("<div class=\"grid\">\n{}</div>\n", body);
    if (!zeros.empty())
      body += fmt::format("<p class=\"note\">0 during the whole run, without a chart: {}.</p>\n",
                          escaped(zeros));
    return section("machine", "The machine",
                   prose(fmt::format("Sampled over {}; all charts share that time.",
                                     quantity(range, Unit::ns))),
                   body);
  }
  return body.empty() ? "" : section("machine", "The machine", "", body);
}

std::string path_part(const Analysis& analysis) {
  const CriticalPath& path = analysis.path;
  if (path.shares.empty()) return "";
  const auto wait = std::ranges::find(path.shares, "core wait", &PathShare::bound);
  const char* const lead =
      wait == path.shares.end()
          ? "The chain of waits that determines the step time: shortening anything else does not "
            "help."
          : "The chain of waits that determines the step time. For how long the thread had no core "
            "is known, but not when: the table takes that out of what it did, in proportion, and "
            "the chart does not.";
  return section("path", "Critical path", lead,
                 edges_chart(path) + table(critical_path_table(analysis), {.titled = true}));
}

}  // namespace warpstep::profiler::html
