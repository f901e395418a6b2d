#include "profiler/analysis/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/modules.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

std::vector<Cell> memory_row(const MemoryOwner& owner, Cell first, Cell last, Cell offset,
                             bool is_at_peak) {
  return {known(owner.layer), owner.kind,
          owner.name,         cell(owner.bytes),
          std::move(first),   std::move(last),
          std::move(offset),  std::string(is_at_peak ? "yes" : "no")};
}

Cell of(const std::optional<double>& share) {
  if (!share) return {};
  return *share;
}

// Separate columns, next to the estimates and to those by kernel names.
void add_measured(const std::vector<DeviceMetrics>& devices, Table& table) {
  if (std::ranges::none_of(devices, [](const DeviceMetrics& m) { return m.measured.any(); }))
    return;
  table.columns.push_back({"sm_active", "multiprocessors active, measured", Unit::share});
  table.columns.push_back({"tensor_pipe", "tensor pipe active, measured", Unit::share});
  table.columns.push_back({"dram", "DRAM throughput, measured", Unit::share});
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (const std::optional<double>& share :
         {devices[i].measured.sm_active, devices[i].measured.tensor_pipe, devices[i].measured.dram})
      table.rows[i].push_back(of(share));
}

Cell yes_or_no(bool is) {
  return std::string(is ? "yes" : "no");
}

std::string peaks_text(const Peaks& peaks) {
  if (peaks.flops_per_second <= 0 && peaks.bytes_per_second <= 0)
    return "this machine's peaks were not measured";
  const auto peak = [](double value, Unit unit) {
    return value > 0 ? shown(value, unit) : std::string("not known");
  };
  return fmt::format("peaks: {}, {}", peak(peaks.flops_per_second, Unit::per_second_flops),
                     peak(peaks.bytes_per_second, Unit::per_second_bytes));
}

}  // namespace

std::string overlaps_text(const Work& work) {
  return work.has_overlaps ? " Kernels ran in parallel: times of calls count each in full and may "
                             "add up to more than the step; shares divide such moments."
                           : "";
}

// In this order below.
std::vector<Table> tables(const Session& session, const Analysis& analysis) {
  return {run_table(analysis.run),      slow_steps_table(analysis.slow_steps),
          breakdown_table(analysis),    steps_table(session, analysis),
          modules_table(analysis.work), layers_table(analysis),
          calls_table(analysis),        ops_table(analysis),
          kernels_table(analysis),      host_table(analysis),
          memory_table(analysis),       loader_table(analysis),
          stalls_table(analysis),       critical_path_table(analysis),
          findings_table(analysis),     devices_table(session, analysis),
          samples_table(session)};
}

Table breakdown_table(const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  Table table{"breakdown",
              "Where a step's time goes",
              fmt::format("Means over {}, {}; a moment that belongs to several "
                          "categories counts "
                          "for the first of them.",
                          counted(static_cast<double>(breakdown.counted), "step"),
                          breakdown.from_spans ? "from spans and activities"
                                               : "from the totals that every step records"),
              {{"category", "category"},
               {"ns", "time per step", Unit::ns},
               {"share", "share of the step", Unit::share}},
              {}};
  for (std::size_t c = 0; c < categories; ++c) {
    const double ns = breakdown.mean[c];
    table.rows.push_back({std::string(title(static_cast<Category>(c))), cell(ns),
                          breakdown.step_ns > 0 ? Cell(ns / breakdown.step_ns) : Cell()});
  }
  table.rows.push_back(
      {std::string("Total"), cell(breakdown.step_ns), breakdown.step_ns > 0 ? Cell(1.0) : Cell()});
  return table;
}

std::string_view items(const Session& session) {
  return fields::text(session.loader, "encoding") == "tokens" ? "tokens" : "samples";
}

Table steps_table(const Session& session, const Analysis& analysis,
                  const std::set<std::uint64_t>* numbers) {
  Table table{"steps",
              "Steps",
              "All recorded steps; the parts add up to the time.",
              {{"step", "step"}, {"epoch", "epoch"}, {"ns", "time", Unit::ns}},
              {}};
  for (std::size_t c = 0; c < categories; ++c)
    table.columns.push_back({fmt::format("{}_ns", name(static_cast<Category>(c))),
                             std::string(title(static_cast<Category>(c))), Unit::ns});
  for (const auto& column :
       {Column{std::string(items(session)), std::string(items(session)), Unit::count},
        Column{"loss", "loss"}, Column{"learning_rate", "learning rate"},
        Column{"from_spans", "parts from"}})
    table.columns.push_back(column);
  const std::size_t n = std::min(session.steps.size(), analysis.breakdown.steps.size());
  for (std::size_t i = 0; i < n; ++i) {
    const Step& step = session.steps[i];
    if (numbers != nullptr && !numbers->contains(step.step)) continue;
    const StepParts& parts = analysis.breakdown.steps[i];
    std::vector<Cell> row{cell(step.step), cell(step.epoch),
                          cell(parts.time.end_ns - parts.time.begin_ns)};
    for (const std::uint64_t ns : parts.parts) row.push_back(cell(ns));
    row.insert(row.end(), {step.samples, step.loss, step.learning_rate,
                           std::string(parts.from_spans ? "spans" : "the step")});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table layers_table(const Analysis& analysis) {
  Table table{"layers",
              "Layers",
              fmt::format("Means per step, in the order of the program; {:.1f} "
                          "% of the kernels' time "
                          "belongs to calls; {}.{}",
                          100 * analysis.work.attributed, peaks_text(analysis.work.peaks),
                          overlaps_text(analysis.work)),
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
               {"of_peak", "of peak", Unit::share}},
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
              fmt::format("In the order of the program; medians and percentiles are of the "
                          "steps that run a call, FLOPs and bytes per run; {}.{}",
                          peaks_text(analysis.work.peaks), overlaps_text(analysis.work)),
              {{"call", "number"},
               {"title", "call"},
               {"layer", "layer"},
               {"op", "op"},
               {"phase", "phase"},
               {"inputs", "inputs"},
               {"implementation", "implementation"},
               {"source", "line of the model"},
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
               {"of_peak", "of peak", Unit::share},
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
                          known(row.source),
                          cell(row.count),
                          row.median_ns,
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
  Table table{
      "ops",
      "Ops",
      "Calls by what they compute, longest first; means per step." + overlaps_text(analysis.work),
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
  Table table{"kernels",
              "Kernels",
              "By name and launch, longest first, over the recorded steps; "
              "where the host computes, "
              "the library's implementations.",
              {{"kernel", "kernel"},
               {"count", "runs", Unit::count},
               {"total_ns", "all", Unit::ns},
               {"share", "share of all kernels", Unit::share},
               {"mean_ns", "mean", Unit::ns},
               {"min_ns", "least", Unit::ns},
               {"max_ns", "most", Unit::ns},
               {"tensor_cores", "tensor cores"},
               {"occupancy", "occupancy, estimated", Unit::share},
               {"blocks_per_multiprocessor", "blocks per multiprocessor"},
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
              "Host functions",
              "Spans and driver functions by self time (without nested ones), over the "
              "recorded "
              "steps and all threads; the share is of the trainer's thread only.",
              {{"function", "function"},
               {"kind", "kind"},
               {"count", "runs", Unit::count},
               {"self_ns", "self time", Unit::ns},
               {"total_ns", "total", Unit::ns},
               {"max_ns", "most", Unit::ns},
               {"share", "share of the steps", Unit::share}},
              {}};
  for (const HostRow& row : analysis.work.host)
    table.rows.push_back({row.function, row.kind, cell(row.count), cell(row.self_ns),
                          cell(row.total_ns), cell(row.max_ns), row.share});
  return table;
}

Table memory_table(const Analysis& analysis) {
  const MemoryTimeline& memory = analysis.memory;
  const auto size = [](std::uint64_t bytes) { return shown(cell(bytes), Unit::bytes); };
  Table table{"memory",
              "Memory",
              fmt::format("All buffers, largest first; the arena of {} has its "
                          "peak in call {} with "
                          "{} alive, and {} last for the whole run.",
                          size(memory.arena_bytes), memory.peak_call + 1, size(memory.peak_bytes),
                          size(memory.persistent_bytes)),
              {{"layer", "layer"},
               {"kind", "kind"},
               {"name", "name"},
               {"bytes", "bytes", Unit::bytes},
               {"first_call", "from call"},
               {"last_call", "to call"},
               {"offset", "offset in the arena"},
               {"at_peak", "alive at the peak"}},
              {}};
  for (const MemoryOwner& owner : memory.persistent)
    table.rows.push_back(memory_row(owner, {}, {}, {}, true));
  for (const Allocation& a : memory.allocations)
    table.rows.push_back(memory_row(
        a.owner, std::int64_t{a.first_call} + 1, std::int64_t{a.last_call} + 1, cell(a.offset),
        a.first_call <= memory.peak_call && memory.peak_call <= a.last_call));
  std::stable_sort(table.rows.begin(), table.rows.end(), [](const auto& a, const auto& b) {
    return std::get<std::int64_t>(a[3]) > std::get<std::int64_t>(b[3]);
  });
  return table;
}

Table loader_table(const Analysis& analysis) {
  const LoaderView& loader = analysis.loader;
  Table table{"loader",
              "Loader workers",
              loader.has_spans ? "Over the windows, with evaluations in them: each worker's "
                                 "samples, and its time per stage."
                               : "No spans of the loader's workers were recorded.",
              {{"worker", "worker"},
               {"samples", "samples", Unit::count},
               {"busy", "busy", Unit::share},
               {"idle_ns", "idle", Unit::ns}},
              {}};
  for (const std::string& stage : loader.stages)
    table.columns.push_back({stage + "_ns", stage, Unit::ns});
  for (const WorkerRow& worker : loader.by_worker) {
    std::vector<Cell> row{worker.thread, cell(worker.samples), worker.busy, cell(worker.idle_ns)};
    for (std::size_t i = 0; i < loader.stages.size(); ++i)
      row.push_back(i < worker.stage_ns.size() ? cell(worker.stage_ns[i]) : Cell());
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table stalls_table(const Analysis& analysis) {
  const Stall& stall = analysis.stall;
  Table table{"stalls",
              "Waiting for data",
              stall.text,
              {{"setting", "setting"},
               {"workers", "workers", Unit::count},
               {"prefetch", "batches ahead", Unit::count},
               {"wait_ns", "wait per step", Unit::ns},
               {"kind", "measured or replayed"}},
              {}};
  const std::int64_t workers = analysis.loader.workers, prefetch = analysis.loader.prefetch;
  if (stall.step_ns <= 0 && stall.wait_by_workers_ns.empty() && stall.wait_by_prefetch_ns.empty())
    return table;
  table.rows.push_back(
      {std::string("as it ran"), workers, prefetch, stall.wait_ns, std::string("measured")});
  const auto replayed = [&](const char* setting, std::int64_t k, std::int64_t q, double wait_ns) {
    table.rows.push_back({std::string(setting), k, q, wait_ns, std::string("replayed")});
  };
  if (stall.predicted_wait_ns > 0 || !stall.wait_by_workers_ns.empty())
    replayed("as it ran", workers, prefetch, stall.predicted_wait_ns);
  for (std::size_t i = 0; i < stall.wait_by_workers_ns.size(); ++i)
    replayed("other workers", static_cast<std::int64_t>(i) + 1, prefetch,
             stall.wait_by_workers_ns[i]);
  for (const auto& [ahead, wait_ns] : stall.wait_by_prefetch_ns)
    replayed("other prefetch", workers, ahead, wait_ns);
  return table;
}

Table critical_path_table(const Analysis& analysis) {
  Table table{"critical_path",
              "Critical path",
              "The chain of waits that makes up the time of each recorded step.",
              {{"bound", "bound by"},
               {"ns", "time per step", Unit::ns},
               {"share", "share of the step", Unit::share}},
              {}};
  if (std::ranges::find(analysis.path.shares, "core wait", &PathShare::bound) !=
      analysis.path.shares.end())
    table.note +=
        " When the thread had no core is not known: that time is taken out of what it did, in "
        "proportion.";
  for (const PathShare& share : analysis.path.shares)
    table.rows.push_back({share.bound, share.ns, share.share});
  return table;
}

Table findings_table(const Analysis& analysis) {
  Table table{"findings",
              "What to do next",
              "Largest expected gain of the run first.",
              {{"key", "finding"},
               {"text", "problem"},
               {"evidence", "evidence"},
               {"advice", "advice"},
               {"flag", "option"},
               {"gain_ns", "gain per step", Unit::ns},
               {"gain_least_ns", "at least", Unit::ns},
               {"gain_most_ns", "at most", Unit::ns},
               {"run_gain_ns", "gain of the run", Unit::ns}},
              {}};
  for (const Finding& finding : analysis.findings)
    table.rows.push_back({finding.key, finding.text, finding.evidence, finding.advice,
                          known(finding.flag), known(finding.gain_ns),
                          finding.gain_most_ns > 0 ? Cell(finding.gain_least_ns) : Cell(),
                          known(finding.gain_most_ns), known(finding.run_gain_ns)});
  return table;
}

Table devices_table(const Session& session, const Analysis& analysis) {
  Table table{"devices",
              "Devices",
              session.computes_on_host()
                  ? "The host computes: it is busy while a call runs. Over the "
                    "recorded steps."
                  : "Over the recorded steps, without what lies between them; occupancy is "
                    "estimated from the launches and weighted by time.",
              {{"device", "number"},
               {"name", "device"},
               {"utilization", "busy", Unit::share},
               {"sm_efficiency", "multiprocessors busy, estimated", Unit::share},
               {"occupancy", "occupancy, estimated", Unit::share},
               {"tensor_core_share", "kernels on tensor cores", Unit::share},
               {"copy_share", "copying", Unit::share},
               {"launch_gap_ns", "waiting for launches", Unit::ns},
               {"other_gap_ns", "other gaps between kernels", Unit::ns}},
              {}};
  const bool is_gpu = !session.computes_on_host();
  const bool is_known = !is_gpu || has_kernels(session);
  const auto of_gpu = [&](double value) { return is_gpu && is_known ? Cell(value) : Cell(); };
  for (const DeviceMetrics& m : analysis.devices)
    table.rows.push_back({std::int64_t{m.device}, m.name, is_known ? Cell(m.utilization) : Cell(),
                          m.is_described ? of_gpu(m.sm_efficiency) : Cell(),
                          m.is_described ? of_gpu(m.occupancy) : Cell(),
                          of_gpu(m.tensor_core_share), of_gpu(m.copy_share),
                          is_gpu && is_known ? cell(m.launch_gap_ns) : Cell(),
                          is_known ? cell(m.other_gap_ns) : Cell()});
  add_measured(analysis.devices, table);
  return table;
}

Table samples_table(const Session& session) {
  Table table{"samples",
              "The machine during the run",
              "Metrics sampled during the run, in the units of their names.",
              {{"metric", "metric"},
               {"count", "samples", Unit::count},
               {"min", "least"},
               {"mean", "mean"},
               {"max", "most"},
               {"last", "last"}},
              {}};
  const SampledMetrics metrics(session);
  for (std::uint32_t id = 0; id < session.names.size(); ++id) {  // in the order of first samples
    const std::span<const Sample> samples = metrics.of(session.name(id));
    if (samples.empty() || samples.front().name != id) continue;
    const MetricLevel level = level_of(samples);
    table.rows.push_back({session.name(id), static_cast<std::int64_t>(level.count), level.least,
                          level.mean, level.most, samples.back().value});
  }
  return table;
}

}  // namespace warpstep::profiler
