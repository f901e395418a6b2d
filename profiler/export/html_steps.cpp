// Where each step's time went: a mean, a strip of steps, and the lanes of any of them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

// Who did the work: layers, calls, kernels, ops, functions of the host.

namespace {

Cell known(double value) {
  return value > 0 ? Cell(value) : Cell();
}

Cell whole(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

bool any_above(const std::vector<CallRow>& rows, double CallRow::*member) {
  for (const CallRow& row : rows)
    if (row.*member > 0) return true;
  return false;
}

Table layers_table(const Work& work) {
  Table table{.key = "layers",
              .title = "Layers",
              .note = "Time a step by phase, in the order of the model; shares are of the step.",
              .columns = {{"layer", "layer"},
                          {"time_ns", "time", Unit::ns},
                          {"share", "share", Unit::share},
                          {"forward_ns", "forward", Unit::ns},
                          {"data_grad_ns", "data grad", Unit::ns},
                          {"weight_grad_ns", "weight grad", Unit::ns},
                          {"update_ns", "update", Unit::ns},
                          {"flops", "work", Unit::flops},
                          {"flops_per_second", "rate", Unit::per_second_flops},
                          {"of_peak", "of peak", Unit::share}}};
  for (const LayerRow& row : work.layers)
    table.rows.push_back({row.layer.empty() ? "(no layer)" : row.layer, row.ns, row.share,
                          known(row.forward_ns), known(row.data_grad_ns), known(row.weight_grad_ns),
                          known(row.update_ns), known(row.flops), known(row.flops_per_second),
                          known(row.of_peak)});
  return table;
}

Table calls_table(const Work& work, bool on_host) {
  Table table{.key = "calls",
              .title = "Calls",
              .note = on_host
                          ? "Medians over the recorded steps, in the order of the program; shares "
                            "are of the step."
                          : "Medians over the recorded steps, in the order of the program; "
                            "time is that of their kernels, host that of enqueuing them.",
              .columns = {{"call", "call"},
                          {"phase", "phase"},
                          {"time_ns", "time", Unit::ns},
                          {"p95_ns", "p95", Unit::ns},
                          {"share", "share", Unit::share}}};
  const bool with_host = !on_host;
  if (with_host) table.columns.push_back({"host_ns", "host", Unit::ns});
  const std::vector<Column> rest = {{"flops_per_second", "rate", Unit::per_second_flops},
                                    {"bytes_per_second", "traffic", Unit::per_second_bytes},
                                    {"of_peak", "of peak", Unit::share},
                                    {"bound", "bound by"}};
  table.columns.insert(table.columns.end(), rest.begin(), rest.end());
  if (with_host) table.columns.push_back({"tensor_cores", "tensor cores"});
  table.columns.push_back({"inputs", "inputs"});
  table.columns.push_back({"implementation", "implementation"});
  for (const CallRow& row : work.calls) {
    std::vector<Cell> cells{row.title.empty() ? "(of no call)" : row.title, row.phase, row.ns,
                            row.p95_ns, row.share};
    if (with_host)
      cells.push_back(static_cast<double>(row.host_ns) /
                      static_cast<double>(std::max<std::uint64_t>(row.count, 1)));
    cells.insert(cells.end(), {known(row.flops_per_second), known(row.bytes_per_second),
                               known(row.of_peak), row.bound});
    if (with_host) cells.emplace_back(row.tensor_cores);
    cells.insert(cells.end(), {row.inputs, row.implementation});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table ops_table(const std::vector<OpRow>& rows) {
  Table table{.key = "ops",
              .title = "Operations",
              .note = "Calls by what they compute.",
              .columns = {{"op", "op"},
                          {"phase", "phase"},
                          {"count", "runs", Unit::count},
                          {"time_ns", "time a step", Unit::ns},
                          {"share", "share", Unit::share},
                          {"flops", "work", Unit::flops},
                          {"bytes", "traffic", Unit::bytes},
                          {"flops_per_second", "rate", Unit::per_second_flops}}};
  for (const OpRow& row : rows)
    table.rows.push_back({row.op, row.phase, whole(row.count), row.ns, row.share, known(row.flops),
                          known(row.bytes), known(row.flops_per_second)});
  return table;
}

Table host_table(const std::vector<HostRow>& rows) {
  Table table{.key = "host",
              .title = "Functions of the host",
              .note = "Self time leaves out what a function called; shares are of the steps' time.",
              .columns = {{"function", "function"},
                          {"kind", "kind"},
                          {"count", "runs", Unit::count},
                          {"self_ns", "self", Unit::ns},
                          {"total_ns", "total", Unit::ns},
                          {"max_ns", "longest", Unit::ns},
                          {"share", "share", Unit::share}}};
  for (const HostRow& row : rows)
    table.rows.push_back({row.function, row.kind, whole(row.count), whole(row.self_ns),
                          whole(row.total_ns), whole(row.max_ns), row.share});
  return table;
}

// On the host these are a library's implementations, which have no launches.
Table kernels_table(const std::vector<KernelRow>& rows, bool on_host) {
  Table table{.key = "kernels",
              .title = on_host ? "Implementations" : "Kernels and their launches",
              .note = on_host ? "Of calls, by what computed them; shares are of all calls' time."
                              : "Grouped by name and launch; shares are of all kernels' time.",
              .columns = {{"kernel", on_host ? "implementation" : "kernel"},
                          {"total_ns", "total", Unit::ns},
                          {"share", "share", Unit::share},
                          {"count", "runs", Unit::count},
                          {"mean_ns", "mean", Unit::ns},
                          {"min_ns", "shortest", Unit::ns},
                          {"max_ns", "longest", Unit::ns}}};
  if (!on_host)
    table.columns.insert(table.columns.end(), {{"tensor_cores", "tensor cores"},
                                               {"blocks_per_multiprocessor", "blocks / SM"},
                                               {"occupancy", "occupancy", Unit::share},
                                               {"launch", "launch"}});
  for (const KernelRow& row : rows) {
    table.rows.push_back({row.kernel, whole(row.total_ns), row.share, whole(row.count), row.mean_ns,
                          whole(row.min_ns), whole(row.max_ns)});
    if (on_host) continue;
    std::vector<Cell>& cells = table.rows.back();
    cells.emplace_back(std::string(row.tensor_cores ? "yes" : "no"));
    cells.emplace_back(row.blocks_per_multiprocessor);
    cells.emplace_back(row.occupancy);
    cells.emplace_back(row.launch);
  }
  return table;
}

std::string peaks_lead(const Work& work) {
  if (work.peaks.flops_per_second <= 0 || work.peaks.bytes_per_second <= 0)
    return "The machine's ceilings were not measured: no call can be held against them.";
  return prose(fmt::format(
      "Held against what this machine was measured to do: {} and {}. \"Of peak\" is of what a "
      "call's intensity allows.",
      quantity(work.peaks.flops_per_second, Unit::per_second_flops),
      quantity(work.peaks.bytes_per_second, Unit::per_second_bytes)));
}

}  // namespace

std::string layers_part(const Session& session, const Analysis& analysis) {
  const Work& work = analysis.work;
  if (work.calls.empty() && work.layers.empty()) return "";
  std::string body = table(layers_table(work), {.titled = true, .code = 0});
  if (any_above(work.calls, &CallRow::flops) && any_above(work.calls, &CallRow::bytes))
    body += roofline(work);
  body += table(calls_table(work, session.computes_on_host()),
                {.titled = true, .filter = true, .code = 0});
  return section("layers", "Layers and calls", peaks_lead(work), body);
}

std::string kernels_part(const Session& session, const Analysis& analysis) {
  if (analysis.work.kernels.empty()) return "";
  return section("kernels", "Kernels", "",
                 table(kernels_table(analysis.work.kernels, session.computes_on_host()),
                       {.titled = true, .filter = true, .code = 0}));
}

std::string ops_part(const Analysis& analysis) {
  std::string body;
  if (!analysis.work.ops.empty()) body += table(ops_table(analysis.work.ops), {.titled = true});
  if (!analysis.work.host.empty())
    body += table(host_table(analysis.work.host), {.titled = true, .filter = true, .code = 0});
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
std::vector<StepParts> strip_of(const Breakdown& breakdown) {
  std::vector<StepParts> steps;
  for (const StepParts& step : breakdown.steps)
    if (step.from_spans) steps.push_back(step);
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

Table mean_table(const Breakdown& breakdown, const std::vector<Category>& shown) {
  Table table{
      .key = "breakdown",
      .title = "Where a step goes",
      .note =
          "A moment that belongs to several counts for the first of them; the parts "
          "add up to the step.",
      .columns = {
          {"part", "part"}, {"time_ns", "time a step", Unit::ns}, {"share", "share", Unit::share}}};
  for (const Category category : shown) {
    const double ns = breakdown.mean[static_cast<std::size_t>(category)];
    table.rows.push_back({std::string(label(category, breakdown)), ns, ns / breakdown.step_ns});
  }
  return table;
}

std::string mean_chart(const Breakdown& breakdown, const std::vector<Category>& shown) {
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
       .table = table(mean_table(breakdown, shown))});
}

Table steps_table(const Breakdown& breakdown, const std::vector<StepParts>& steps,
                  const std::vector<Category>& shown) {
  Table table{.key = "steps",
              .title = "Steps",
              .columns = {{"step", "step", Unit::count}, {"time_ns", "time", Unit::ns}}};
  for (const Category category : shown)
    table.columns.push_back({std::string(label(category, breakdown)) + "_ns",
                             std::string(label(category, breakdown)), Unit::ns});
  for (const StepParts& step : steps) {
    std::vector<Cell> row{static_cast<std::int64_t>(step.step), length(step)};
    for (const Category category : shown)
      row.emplace_back(static_cast<double>(step.parts[static_cast<std::size_t>(category)]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// A step's stack, from below in the order of the categories; links to its lanes.
std::string stack(const Breakdown& breakdown, const StepParts& step,
                  const std::vector<Category>& shown, double x, double width, double highest,
                  double base) {
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
  const bool is_cut = length(step) > highest;
  return fmt::format("<a href=\"#lanes\" data-step=\"{}\"><title>{}</title>{}{}{}</a>\n", step.step,
                     escaped(title), bar("hit", x, 16, width, base - 16), bars,
                     is_cut ? text(x + width / 2, 12, "\u2191", "tick", "middle") : "");
}

std::string strip_chart(const Breakdown& breakdown, const std::vector<StepParts>& steps,
                        const std::vector<Category>& shown, bool has_lanes) {
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
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double x = static_cast<double>(i) * width;
    bars += stack(breakdown, steps[i], shown, x + gap / 2, width - gap, highest, base);
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
       .summary = fmt::format("A stacked bar a step; the median takes {}, the slowest {}.{}",
                              quantity(middle(lengths), Unit::ns),
                              quantity(std::ranges::max(lengths), Unit::ns),
                              has_lanes ? " Choose one to see its lanes." : ""),
       .height = static_cast<int>(base) + 20,
       .body = bars + body,
       .legend = legend,
       .table = table(steps_table(breakdown, steps, shown)),
       .is_interactive = true});
}

// The whole run, when it is longer than the strip: the slowest and the median of some neighbours.
std::string run_chart(const Session& session, const Breakdown& breakdown, std::size_t in_strip) {
  const std::vector<StepParts>& steps = breakdown.steps;
  if (steps.size() <= in_strip || steps.size() < 3) return "";
  const std::size_t bucket = (steps.size() + overview_points - 1) / overview_points;
  std::vector<double> lengths;
  for (const StepParts& step : steps) lengths.push_back(length(step));
  const double highest = std::min(std::ranges::max(lengths), 4 * middle(lengths));
  constexpr double base = 90;
  const auto place = [&](double ns) { return base - std::min(ns / highest, 1.0) * (base - 16); };
  const double first = static_cast<double>(steps.front().step);
  const double range = std::max(static_cast<double>(steps.back().step) - first, 1.0);
  std::vector<Point> slowest, typical;
  Table data{.key = "run",
             .title = "All steps",
             .columns = {{"first_step", "from step", Unit::count},
                         {"median_ns", "median", Unit::ns},
                         {"slowest_ns", "slowest", Unit::ns}}};
  for (std::size_t i = 0; i < steps.size(); i += bucket) {
    const std::size_t end = std::min(i + bucket, steps.size());
    const std::vector<double> some(lengths.begin() + static_cast<std::ptrdiff_t>(i),
                                   lengths.begin() + static_cast<std::ptrdiff_t>(end));
    const double x = (static_cast<double>(steps[i].step) - first) / range;
    slowest.push_back({x, place(std::ranges::max(some))});
    typical.push_back({x, place(middle(some))});
    data.rows.push_back(
        {static_cast<std::int64_t>(steps[i].step), middle(some), std::ranges::max(some)});
  }
  std::string body;
  for (const Window& window : session.windows) {
    const double x = (static_cast<double>(window.first_step) - first) / range;
    const double end = (static_cast<double>(window.last_step) - first) / range;
    body += bar(
        "window", std::clamp(x, 0.0, 1.0), 16, std::max(end - x, 0.004), base - 16,
        fmt::format("recorded with spans: steps {} to {}", window.first_step, window.last_step));
  }
  if (bucket > 1) body += line("l-faint", slowest, base);
  body += line("l-main", typical, base);
  for (const double at : ticks(highest, 2)) body += grid_line(place(at), tick_text(at, Unit::ns));
  body += text(0, base + 16, fmt::format("step {}", steps.front().step), "tick");
  body += text(1, base + 16, fmt::format("{}", steps.back().step), "tick");
  return chart(
      {.id = "run",
       .title = "The whole run",
       .summary = fmt::format("Step time from step {} to {}, median {}.", steps.front().step,
                              steps.back().step, quantity(middle(lengths), Unit::ns)),
       .height = static_cast<int>(base) + 20,
       .body = body,
       .legend = legend_item("window", "recorded with spans"),
       .table = table(data)});
}

// The step that stands for the others: the median of those with lanes.
std::size_t typical_step(const Lanes& lanes) {
  std::vector<std::size_t> order(lanes.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lanes.steps[i].length_ns; });
  return order[order.size() / 2];
}

}  // namespace

std::string category_class(Category category) {
  constexpr const char* names[] = {"c-kernel", "c-copy", "c-memset", "c-communication", "c-runtime",
                                   "c-data",   "c-sync", "c-cpu",    "c-other"};
  return names[static_cast<std::size_t>(category)];
}

std::string mean_part(const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  return mean_chart(breakdown, used(breakdown, {}));
}

std::string steps_part(const Session& session, const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  if (breakdown.steps.empty()) return "";
  const std::vector<StepParts> steps = strip_of(breakdown);
  const std::vector<Category> shown = used(breakdown, steps);
  const Lanes lanes = find_lanes(session, analysis.loader);
  std::string body = strip_chart(breakdown, steps, shown, !lanes.steps.empty());
  if (lanes.steps.empty()) {
    body +=
        "<p id=\"lanes\" class=\"note\">No lanes: no step was recorded with spans. Train with "
        "<code>--profile spans</code> to see what each thread did.</p>\n";
  } else {
    body += lanes_chart(lanes, typical_step(lanes));
    if (lanes.left_out > 0)
      body += fmt::format(
          "<p class=\"note\">{} more recorded steps have no lanes here, to keep the "
          "page small; the exported traces have all.</p>\n",
          lanes.left_out);
    body += "<script type=\"application/json\" id=\"lanes-data\">" + script_json(to_json(lanes)) +
            "</script>\n";
  }
  return section("steps", "Where each step's time went", "",
                 body + run_chart(session, breakdown, steps.size()));
}

}  // namespace warpstep::profiler::html
