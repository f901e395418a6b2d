// The page's sections on steps (a mean, a strip, the lanes of any step) and on the work: layers,
// calls, kernels, ops, functions of the host.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

namespace {

bool any_above(const std::vector<CallRow>& rows, double CallRow::*member) {
  for (const CallRow& row : rows)
    if (row.*member > 0) return true;
  return false;
}

std::string peaks_lead(const Work& work) {
  if (work.peaks.flops_per_second <= 0 || work.peaks.bytes_per_second <= 0)
    return "The machine's peaks were not measured: calls cannot be compared with them.";
  return prose(
      fmt::format("Compared with this machine's measured peaks: {} and {}. \"Of peak\" is relative "
                  "to the limit "
                  "at a call's intensity.",
                  quantity(work.peaks.flops_per_second, Unit::per_second_flops),
                  quantity(work.peaks.bytes_per_second, Unit::per_second_bytes)));
}

}  // namespace

namespace {

// The rows by this column, the largest first and those without a number last.
Table sorted_by(Table data, std::string_view key) {
  const auto column = std::ranges::find(data.columns, key, &Column::key);
  if (column == data.columns.end()) return data;
  const auto at = static_cast<std::size_t>(column - data.columns.begin());
  const auto value = [at](const std::vector<Cell>& row) {
    const auto* number = std::get_if<double>(&row[at]);
    return number ? *number : -1;
  };
  std::ranges::stable_sort(data.rows, std::ranges::greater(), value);
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"in the order of the program", "longest first"},
        {"In the order of the program", "Longest first"}})
    if (const std::size_t found = data.note.find(from); found != std::string::npos)
      data.note.replace(found, from.size(), to);
  return data;
}

std::string not_recorded(const Session& session) {
  const bool on_host = session.computes_on_host();
  const std::string_view level = on_host ? "spans" : "deep";
  const std::string why = why_none(session, level);
  return fmt::format(
      "<p class=\"note\">The times of {} were not recorded: {}.</p>\n",
      on_host ? "layers and calls" : "layers, calls and kernels",
      why.empty() ? fmt::format("train with <code>--profile {}</code>", level) : prose(why));
}

}  // namespace

// The page shows times per run; JSON and CSV have the sum, and 0 for what did not run.
Table with_host_time_per_run(Table calls) {
  const auto column = [&](std::string_view key) {
    return static_cast<std::size_t>(std::ranges::find(calls.columns, key, &Column::key) -
                                    calls.columns.begin());
  };
  const std::size_t host = column("host_ns"), count = column("count");
  const std::size_t times[] = {column("ns"), column("p95_ns"), column("share")};
  calls.columns[host].title = "enqueuing";
  for (auto& row : calls.rows) {
    const auto* sum = std::get_if<std::int64_t>(&row[host]);
    const auto* runs = std::get_if<std::int64_t>(&row[count]);
    if (runs && *runs == 0)
      for (const std::size_t time : times) row[time] = {};
    if (sum && runs && *runs > 0)
      row[host] = static_cast<double>(*sum) / static_cast<double>(*runs);
  }
  return calls;
}

std::string layers_part(const Session& session, const Analysis& analysis) {
  const Work& work = analysis.work;
  if (work.calls.empty() && work.layers.empty()) return "";
  if (!has_call_times(work))
    return section("layers", "Layers and calls", "", not_recorded(session));
  std::string body = modules_tree(work);
  body += "<details class=\"more\"><summary>Layers as a table, with gradients apart</summary>\n" +
          table(sorted_by(
                    on_page(layers_table(analysis),
                            {"layer", "ns", "share", "forward_ns", "data_grad_ns", "weight_grad_ns",
                             "update_ns", "flops", "flops_per_second", "of_peak"}),
                    "ns"),
                {.titled = true, .filter = true, .code = 0, .sorted = "ns"}) +
          "</details>\n";
  if (any_above(work.calls, &CallRow::flops) && any_above(work.calls, &CallRow::bytes))
    body += roofline(work);
  body += table(sorted_by(on_page(with_host_time_per_run(calls_table(analysis)),
                                  {"title", "phase", "ns", "p95_ns", "share", "host_ns",
                                   "flops_per_second", "bytes_per_second", "of_peak", "bound",
                                   "tensor_cores", "inputs", "implementation", "source", "call"}),
                          "ns"),
                {.titled = true, .filter = true, .code = 0, .sorted = "ns"});
  return section("layers", "Layers and calls", peaks_lead(work), body);
}

std::string kernels_part(const Analysis& analysis) {
  if (analysis.work.kernels.empty()) return "";
  return section(
      "kernels", "Kernels", "",
      table(on_page(kernels_table(analysis)), {.titled = true, .filter = true, .code = 0}));
}

std::string ops_part(const Analysis& analysis) {
  std::string body;
  if (!analysis.work.ops.empty() && has_call_times(analysis.work))
    body += table(on_page(ops_table(analysis)), {.titled = true});
  if (!analysis.work.host.empty())
    body += table(on_page(host_table(analysis)), {.titled = true, .filter = true, .code = 0});
  return body.empty() ? "" : section("ops", "Operations and host functions", "", body);
}

namespace {

constexpr std::size_t strip_steps = 160;  // each a bar
constexpr std::size_t overview_points = 400;

double length(const StepParts& step) {
  return static_cast<double>(step.time.end_ns - step.time.begin_ns);
}

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Those of windows, else the last ones.
std::vector<StepParts> strip_of(const Session& session, const Breakdown& breakdown) {
  std::vector<StepParts> steps;
  for (const StepParts& step : breakdown.steps)
    if (step.from_spans) steps.push_back(step);
  // Of a GPU that was not traced the parts are the step's own, but its threads have lanes.
  if (const IntervalSet recorded = step_numbers(complete_windows(session)); steps.empty())
    for (const StepParts& step : breakdown.steps)
      if (recorded.has(step.step)) steps.push_back(step);
  if (steps.empty()) steps = breakdown.steps;
  if (steps.size() > strip_steps)
    steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(strip_steps));
  return steps;
}

std::vector<Category> used(const Breakdown& breakdown, const std::vector<StepParts>& steps) {
  std::vector<Category> result;
  for (std::size_t i = 0; i < categories; ++i)
    if (breakdown.mean[i] > 0 ||
        std::ranges::any_of(steps, [i](const StepParts& step) { return step.parts[i] > 0; }))
      result.push_back(static_cast<Category>(i));
  return result;
}

std::string mean_chart(const Analysis& analysis, const std::vector<Category>& shown) {
  const Breakdown& breakdown = analysis.breakdown;
  if (breakdown.step_ns <= 0) return "";
  std::string body, legend;
  double x = 0;
  for (const Category category : shown) {
    const double ns = breakdown.mean[static_cast<std::size_t>(category)];
    const double share = ns / breakdown.step_ns;
    const std::string what =
        fmt::format("{} {}", label(category, breakdown), quantity(share, Unit::share));
    body += bar(category_class(category), x, 0, share, 30, what + ", " + quantity(ns, Unit::ns));
    legend += legend_item(category_class(category), what);
    x += share;
  }
  return chart(
      {.id = "breakdown",
       .title = fmt::format("The mean step, {}", quantity(breakdown.step_ns, Unit::ns)),
       .summary =
           breakdown.tb_compatible
               ? "One bar for the step, cut by the categories and rules of torch_tb_profiler."
               : "One bar for the step, cut into the parts that its time went to.",
       .height = 30,
       .body = body,
       .legend = legend,
       .table = table(labelled_breakdown(analysis))});
}

std::set<std::uint64_t> numbers_of(const std::vector<StepParts>& steps) {
  std::set<std::uint64_t> numbers;
  for (const StepParts& step : steps) numbers.insert(step.step);
  return numbers;
}

// The rows of the strip's steps, in the report's words.
Table strip_table(const Session& session, const Analysis& analysis,
                  const std::vector<StepParts>& steps) {
  const std::set<std::uint64_t> numbers = numbers_of(steps);
  Table all = steps_table(session, analysis, &numbers);
  for (std::size_t c = 0; c < categories; ++c) {
    const auto category = static_cast<Category>(c);
    for (Column& column : all.columns)
      if (column.key == std::string(name(category)) + "_ns")
        column.title = label(category, analysis.breakdown);
  }
  all.note = "The steps of the chart; the parts add up to the time.";
  return all;
}

// A step's stack, from below in the order of the categories; links to its lanes. `note` ends its
// title.
std::string stack(const Breakdown& breakdown, const StepParts& step,
                  const std::vector<Category>& shown, double x, double width, double highest,
                  double base, std::string_view note) {
  const double scale = (base - 16) / highest;
  std::string title = fmt::format("Step {}: {}", step.step, quantity(length(step), Unit::ns));
  std::string bars;
  double y = base;
  for (const Category category : shown) {
    const double ns = static_cast<double>(step.parts[static_cast<std::size_t>(category)]);
    if (ns <= 0) continue;
    title += fmt::format(", {} {}", label(category, breakdown), quantity(ns, Unit::ns));
    const double height = std::min(ns * scale, y - 16);
    y -= height;
    bars += bar(category_class(category), x, y, width, height);
  }
  title += note;
  const bool is_cut = length(step) > highest;
  return fmt::format("<a href=\"#lanes\" data-step=\"{}\"><title>{}</title>{}{}{}</a>\n", step.step,
                     escaped(title), bar("hit", x, 16, width, base - 16), bars,
                     is_cut ? text(x + width / 2, 12, "\u2191", "tick", "middle") : "");
}

std::string choose_text(std::size_t with_lanes, std::size_t steps) {
  if (with_lanes == 0) return "";
  if (with_lanes == steps) return " Choose one to see its lanes.";
  return fmt::format(" Choose one to see its lanes, which {} of the {} have.", with_lanes, steps);
}

std::string strip_chart(const Session& session, const Analysis& analysis,
                        const std::vector<StepParts>& steps, const std::vector<Category>& shown,
                        const Lanes& lanes) {
  const Breakdown& breakdown = analysis.breakdown;
  if (steps.empty()) return "";
  std::vector<double> lengths;
  for (const StepParts& step : steps) lengths.push_back(length(step));
  // One slow step must not flatten the others: what is above is cut and marked by an arrow.
  const double highest = std::min(std::ranges::max(lengths), 2.5 * middle(lengths));
  constexpr double base = 170;
  std::string body, bars;
  for (const double at : ticks(highest, 2))
    if (at > 0) body += grid_line(base - at / highest * (base - 16), tick_text(at, Unit::ns));
  const double width = 1 / static_cast<double>(steps.size());
  // A gap that stays visible on a phone, and none where bars are hairs anyway.
  const double gap = steps.size() > 80 ? 0 : width * 0.12;
  std::size_t with_lanes = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double x = static_cast<double>(i) * width;
    const bool has_lanes =
        std::ranges::binary_search(lanes.steps, steps[i].step, {}, &LaneStep::step);
    with_lanes += has_lanes ? 1 : 0;
    bars += stack(breakdown, steps[i], shown, x + gap / 2, width - gap, highest, base,
                  has_lanes || lanes.steps.empty() ? "" : "; no lanes");
    const std::size_t every = std::max<std::size_t>((steps.size() + 3) / 4, 1);
    if (i % every == 0 || i + 1 == steps.size())
      bars += text(i == 0                  ? 0
                   : i + 1 == steps.size() ? 1
                                           : x + width / 2,
                   base + 16, fmt::format("{}", steps[i].step), "tick");
  }
  std::string legend;
  for (const Category category : shown)
    legend += legend_item(category_class(category), label(category, breakdown));
  return chart(
      {.id = "strip",
       .title = fmt::format("Steps {} to {}, one by one", steps.front().step, steps.back().step),
       .summary = fmt::format("A stacked bar per step; the median takes {}, the slowest {}.{}",
                              quantity(middle(lengths), Unit::ns),
                              quantity(std::ranges::max(lengths), Unit::ns),
                              choose_text(with_lanes, steps.size())),
       .height = static_cast<int>(base) + 20,
       .body = body + bars,
       .legend = legend,
       .table = table(strip_table(session, analysis, steps)),
       .is_interactive = true,
       .has_gutter = true});
}

// Step times and losses share their axis: the steps of the run, in buckets.
struct RunAxis {
  std::size_t bucket = 1;  // steps in a point
  double first = 0, range = 1;
  double x(std::uint64_t step) const {
    return std::clamp((static_cast<double>(step) - first) / range, 0.0, 1.0);
  }
};

RunAxis run_axis(std::uint64_t first, std::uint64_t last, std::size_t steps) {
  return {.bucket = std::max<std::size_t>(1, (steps + overview_points - 1) / overview_points),
          .first = static_cast<double>(first),
          .range = std::max(static_cast<double>(last) - static_cast<double>(first), 1.0)};
}

// Windows that were recorded with spans; evaluations and checkpoints lie between two steps.
std::string run_marks(const Session& session, const RunAxis& axis, double top, double base) {
  std::string html;
  for (const Window& window : marked_windows(session)) {
    const double x = axis.x(window.first_step);
    html += bar(
        "window", x, top, std::max(axis.x(window.last_step) - x, 0.004), base - top,
        fmt::format("recorded with spans: steps {} to {}", window.first_step, window.last_step));
  }
  for (const RunMark& mark : run_marks_of(session)) {
    const auto after =
        std::ranges::lower_bound(session.steps, mark.time.end_ns, {}, &Step::begin_ns);
    const std::uint64_t step =
        after == session.steps.end() ? session.steps.back().step : after->step;
    html += vertical(mark.is_evaluation ? "l-evaluation" : "l-checkpoint", axis.x(step), top, base);
  }
  return html;
}

std::string loss_chart(const Session& session) {
  const std::vector<Step>& steps = session.steps;
  const auto is_known = [](const Step& step) { return std::isfinite(step.loss) && step.loss != 0; };
  if (std::ranges::count_if(steps, is_known) < 3) return "";
  const RunAxis axis = run_axis(steps.front().step, steps.back().step, steps.size());
  Table data{.key = "losses",
             .title = "Loss",
             .columns = {{"first_step", "from step"}, {"loss", "mean loss"}}};
  std::vector<std::pair<double, double>> means;
  for (std::size_t i = 0; i < steps.size(); i += axis.bucket) {
    double sum = 0, count = 0;
    for (std::size_t k = i; k < std::min(i + axis.bucket, steps.size()); ++k)
      if (is_known(steps[k])) sum += steps[k].loss, ++count;
    if (count == 0) continue;
    means.emplace_back(axis.x(steps[i].step), sum / count);
    data.rows.push_back({static_cast<std::int64_t>(steps[i].step), sum / count});
  }
  constexpr double base = 90, top = 16;
  double low = 1e300, high = -1e300;
  for (const auto& [x, loss] : means) low = std::min(low, loss), high = std::max(high, loss);
  if (low > 0 && low < 0.7 * high) low = 0;
  if (high <= low) high = low + 1;
  std::vector<Point> points;
  for (const auto& [x, loss] : means)
    points.push_back({x, base - (loss - low) / (high - low) * (base - top)});
  const auto label = [](double loss) { return fmt::format("{:.3g}", loss); };
  return chart({.id = "run-loss",
                .title = "The whole run: loss",
                .summary = fmt::format("Training loss from step {} to {}: {} at first, {} at last.",
                                       steps.front().step, steps.back().step,
                                       label(means.front().second), label(means.back().second)),
                .height = static_cast<int>(base) + 20,
                .body = run_marks(session, axis, top, base) + grid_line(top, label(high)) +
                        grid_line(base, label(low)) + line("l-main", points, base) +
                        text(0, base + 16, fmt::format("step {}", steps.front().step), "tick") +
                        text(1, base + 16, fmt::format("{}", steps.back().step), "tick"),
                .legend = fmt::format("<span>last {}</span>", label(means.back().second)),
                .table = table(data),
                .has_gutter = true});
}

// The whole run, when it is longer than the strip: the slowest and the median of some neighbours.
std::string run_chart(const Session& session, const Breakdown& breakdown, std::size_t in_strip) {
  const std::vector<StepParts>& steps = breakdown.steps;
  if (steps.size() <= in_strip || steps.size() < 3) return "";
  const RunAxis axis = run_axis(steps.front().step, steps.back().step, steps.size());
  const std::size_t bucket = axis.bucket;
  std::vector<double> lengths;
  for (const StepParts& step : steps) lengths.push_back(length(step));
  const double highest = std::min(std::ranges::max(lengths), 4 * middle(lengths));
  constexpr double base = 90;
  const auto place = [&](double ns) { return base - std::min(ns / highest, 1.0) * (base - 16); };
  std::vector<Point> slowest, typical;
  Table data{.key = "run",
             .title = "All steps",
             .columns = {{"first_step", "from step"},
                         {"median_ns", "median", Unit::ns},
                         {"slowest_ns", "slowest", Unit::ns}}};
  for (std::size_t i = 0; i < steps.size(); i += bucket) {
    const std::size_t end = std::min(i + bucket, steps.size());
    const std::vector<double> some(lengths.begin() + static_cast<std::ptrdiff_t>(i),
                                   lengths.begin() + static_cast<std::ptrdiff_t>(end));
    const double x = axis.x(steps[i].step);
    slowest.push_back({x, place(std::ranges::max(some))});
    typical.push_back({x, place(middle(some))});
    data.rows.push_back(
        {static_cast<std::int64_t>(steps[i].step), middle(some), std::ranges::max(some)});
  }
  std::string body = run_marks(session, axis, 16, base);
  if (bucket > 1) body += line("l-faint", slowest, base);
  body += line("l-main", typical, base);
  for (const double at : ticks(highest, 2)) body += grid_line(place(at), tick_text(at, Unit::ns));
  body += text(0, base + 16, fmt::format("step {}", steps.front().step), "tick");
  body += text(1, base + 16, fmt::format("{}", steps.back().step), "tick");
  return chart(
      {.id = "run-steps",
       .title = "The whole run: step times",
       .summary = fmt::format("Step time from step {} to {}, median {}.", steps.front().step,
                              steps.back().step, quantity(middle(lengths), Unit::ns)),
       .height = static_cast<int>(base) + 20,
       .body = body,
       .legend = marks_legend(session),
       .table = table(data),
       .has_gutter = true});
}

// The kernel does not say when a thread had no core, so that lanes cannot show it.
std::string core_wait_note(const Breakdown& breakdown) {
  constexpr double least = 0.01;
  const double ns = breakdown.mean[static_cast<std::size_t>(Category::core_wait)];
  if (ns < least * breakdown.step_ns || breakdown.step_ns <= 0) return "";
  return fmt::format(
      "<p class=\"note\">Bars include the time in which a thread was ready to run and had no core, "
      "in the mean step {} of the trainer's thread ({}): for how long that was is known, but not "
      "when.</p>\n",
      quantity(ns, Unit::ns), quantity(ns / breakdown.step_ns, Unit::share));
}

// The step shown first: the median of those with lanes.
std::size_t typical_step(const Lanes& lanes) {
  std::vector<std::size_t> order(lanes.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lanes.steps[i].length_ns; });
  return order[order.size() / 2];
}

}  // namespace

std::string category_class(Category category) {
  constexpr const char* names[] = {"c-kernel", "c-copy", "c-memset", "c-communication", "c-runtime",
                                   "c-data",   "c-sync", "c-cpu",    "c-core",          "c-other"};
  return names[static_cast<std::size_t>(category)];
}

std::string mean_part(const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  return mean_chart(analysis, used(breakdown, {}));
}

std::string steps_part(const Session& session, const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  if (breakdown.steps.empty()) return "";
  const std::vector<StepParts> steps = strip_of(session, breakdown);
  const std::vector<Category> shown = used(breakdown, steps);
  const Lanes lanes = find_lanes(session, analysis.loader, numbers_of(steps));
  std::string body = strip_chart(session, analysis, steps, shown, lanes);
  if (lanes.steps.empty()) {
    const std::string why = why_none(session, "spans");
    body += fmt::format(
        "<p id=\"lanes\" class=\"note\">No lanes: no step was recorded with spans{}.</p>\n",
        why.empty() ? ". Train with <code>--profile spans</code> to see what each thread did"
                    : ": " + prose(why));
  } else {
    body += lanes_chart(lanes, typical_step(lanes)) + core_wait_note(breakdown);
    if (lanes.left_out > 0)
      body += fmt::format(
          "<p class=\"note\">{} more recorded steps have no lanes here, to keep the "
          "page small; the exported traces have all.</p>\n",
          lanes.left_out);
    body += "<script type=\"application/json\" id=\"lanes-data\">" + script_json(to_json(lanes)) +
            "</script>\n";
  }
  const std::string times = run_chart(session, breakdown, steps.size()), loss = loss_chart(session);
  body += times.empty() || loss.empty() ? times + loss
                                        : "<div class=\"pair\">\n" + times + loss + "</div>\n";
  return section("steps", "Where each step's time went", "", body);
}

}  // namespace warpstep::profiler::html
