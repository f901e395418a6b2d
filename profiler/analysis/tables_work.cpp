#include <fmt/format.h>

#include "profiler/analysis/table_parts.h"

namespace warpstep::profiler::analysis {
namespace {

Cell yes_or_no(bool is) {
  return std::string(is ? "yes" : "no");
}

std::string peaks_text(const Peaks& peaks) {
  if (peaks.flops_per_second <= 0 && peaks.bytes_per_second <= 0)
    return "no peaks of this machine are known";
  const auto peak = [](double value, Unit unit) {
    return value > 0 ? shown(value, unit) : std::string("not known");
  };
  return fmt::format("peaks: {}, {}", peak(peaks.flops_per_second, Unit::per_second_flops),
                     peak(peaks.bytes_per_second, Unit::per_second_bytes));
}

}  // namespace

Table layers_table(const Analysis& analysis) {
  Table table{
      "layers",
      "Layers",
      fmt::format("Means a step, in the order of the program; {:.1f} % of the kernels' time "
                  "belongs to calls; {}.",
                  100 * analysis.work.attributed, peaks_text(analysis.work.peaks)),
      {{"layer", "layer"},
       {"calls", "calls", Unit::count},
       {"ns", "time", Unit::ns},
       {"share", "share of the step", Unit::share},
       {"forward_ns", "forward", Unit::ns},
       {"data_grad_ns", "data gradient", Unit::ns},
       {"weight_grad_ns", "weight gradient", Unit::ns},
       {"update_ns", "update", Unit::ns},
       {"flops", "FLOPs", Unit::flops},
       {"bytes", "bytes", Unit::bytes},
       {"flops_per_second", "FLOP/s", Unit::per_second_flops},
       {"bytes_per_second", "bandwidth", Unit::per_second_bytes},
       {"of_peak", "of what is possible", Unit::share}},
      {}};
  for (const LayerRow& row : analysis.work.layers)
    table.rows.push_back(
        {row.layer.empty() ? std::string("(no layer)") : row.layer, cell(row.calls), row.ns,
         row.share, row.forward_ns, row.data_grad_ns, row.weight_grad_ns, row.update_ns, row.flops,
         row.bytes, known(row.flops_per_second), known(row.bytes_per_second), known(row.of_peak)});
  return table;
}

Table calls_table(const Analysis& analysis) {
  Table table{"calls",
              "Calls",
              fmt::format("In the order of the program; times are a step's, FLOPs and bytes a "
                          "run's; {}.",
                          peaks_text(analysis.work.peaks)),
              {{"call", "number", Unit::count},
               {"title", "call"},
               {"layer", "layer"},
               {"op", "op"},
               {"phase", "phase"},
               {"inputs", "inputs"},
               {"implementation", "implementation"},
               {"count", "runs", Unit::count},
               {"ns", "median", Unit::ns},
               {"p95_ns", "95th percentile", Unit::ns},
               {"total_ns", "all steps", Unit::ns},
               {"share", "share of the steps", Unit::share},
               {"host_ns", "enqueuing, all steps", Unit::ns},
               {"flops", "FLOPs", Unit::flops},
               {"bytes", "bytes", Unit::bytes},
               {"flops_per_second", "FLOP/s", Unit::per_second_flops},
               {"bytes_per_second", "bandwidth", Unit::per_second_bytes},
               {"of_peak", "of what is possible", Unit::share},
               {"bound", "bound by"},
               {"tensor_cores", "tensor cores"}},
              {}};
  for (const CallRow& row : analysis.work.calls) {
    const Cell number = row.call < 0 ? Cell() : Cell(std::int64_t{row.call} + 1);
    const bool is_call = row.call >= 0;
    table.rows.push_back({number,
                          row.title,
                          known(row.layer),
                          known(row.op),
                          known(row.phase),
                          known(row.inputs),
                          known(row.implementation),
                          cell(row.count),
                          row.ns,
                          row.p95_ns,
                          cell(row.total_ns),
                          row.share,
                          cell(row.host_ns),
                          is_call ? Cell(row.flops) : Cell(),
                          is_call ? Cell(row.bytes) : Cell(),
                          known(row.flops_per_second),
                          known(row.bytes_per_second),
                          known(row.of_peak),
                          known(row.bound),
                          known(row.tensor_cores)});
  }
  return table;
}

Table ops_table(const Analysis& analysis) {
  Table table{"ops",
              "Ops",
              "Calls by what they compute, longest first; means a step.",
              {{"op", "op"},
               {"phase", "phase"},
               {"count", "runs, all steps", Unit::count},
               {"ns", "time", Unit::ns},
               {"share", "share of the step", Unit::share},
               {"flops", "FLOPs", Unit::flops},
               {"bytes", "bytes", Unit::bytes},
               {"flops_per_second", "FLOP/s", Unit::per_second_flops}},
              {}};
  for (const OpRow& row : analysis.work.ops)
    table.rows.push_back({row.op, known(row.phase), cell(row.count), row.ns, row.share, row.flops,
                          row.bytes, known(row.flops_per_second)});
  return table;
}

Table kernels_table(const Analysis& analysis) {
  Table table{
      "kernels",
      "Kernels",
      "By name and launch, longest first, over the recorded steps; where the host computes, "
      "its library's implementations.",
      {{"kernel", "kernel"},
       {"count", "runs", Unit::count},
       {"total_ns", "all", Unit::ns},
       {"share", "share of all kernels", Unit::share},
       {"mean_ns", "mean", Unit::ns},
       {"min_ns", "least", Unit::ns},
       {"max_ns", "most", Unit::ns},
       {"tensor_cores", "tensor cores"},
       {"occupancy", "occupancy, estimated", Unit::share},
       {"blocks_per_multiprocessor", "blocks a multiprocessor"},
       {"launch", "launch"}},
      {}};
  for (const KernelRow& row : analysis.work.kernels) {
    const bool is_of_gpu = !row.launch.empty();
    table.rows.push_back({row.kernel, cell(row.count), cell(row.total_ns), row.share, row.mean_ns,
                          cell(row.min_ns), cell(row.max_ns),
                          is_of_gpu ? yes_or_no(row.tensor_cores) : Cell(), known(row.occupancy),
                          known(row.blocks_per_multiprocessor), known(row.launch)});
  }
  return table;
}

Table host_table(const Analysis& analysis) {
  Table table{"host",
              "The host's functions",
              "Spans and functions of the driver, longest by their own time first, over the "
              "recorded steps and all threads; the share is the trainer's thread's alone.",
              {{"function", "function"},
               {"kind", "kind"},
               {"count", "runs", Unit::count},
               {"self_ns", "own time", Unit::ns},
               {"total_ns", "with what it calls", Unit::ns},
               {"max_ns", "most", Unit::ns},
               {"share", "share of the steps", Unit::share}},
              {}};
  for (const HostRow& row : analysis.work.host)
    table.rows.push_back({row.function, row.kind, cell(row.count), cell(row.self_ns),
                          cell(row.total_ns), cell(row.max_ns), row.share});
  return table;
}

}  // namespace warpstep::profiler::analysis
