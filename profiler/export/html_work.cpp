// Who did the work: layers, calls, kernels, ops, functions of the host.
#include <fmt/format.h>

#include <algorithm>

#include "profiler/export/html.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
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

}  // namespace warpstep::profiler::html
