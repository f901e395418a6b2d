#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/table_parts.h"

namespace warpstep::profiler::analysis {
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

// Columns of their own, beside what is estimated or goes by names.
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

}  // namespace

Table memory_table(const Analysis& analysis) {
  const MemoryTimeline& memory = analysis.memory;
  const auto size = [](std::uint64_t bytes) { return shown(cell(bytes), Unit::bytes); };
  Table table{
      "memory",
      "Memory",
      fmt::format("Who holds what, largest first; the arena of {} is fullest in call {} with "
                  "{} alive, and {} last for the whole run.",
                  size(memory.arena_bytes), memory.peak_call + 1, size(memory.peak_bytes),
                  size(memory.persistent_bytes)),
      {{"layer", "layer"},
       {"kind", "kind"},
       {"name", "name"},
       {"bytes", "bytes", Unit::bytes},
       {"first_call", "from call", Unit::count},
       {"last_call", "to call", Unit::count},
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
              "The loader's workers",
              loader.has_spans
                  ? "Over the recorded steps: what each worker made, and how long each "
                    "stage took it."
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
               {"wait_ns", "wait a step", Unit::ns},
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

Table devices_table(const Session& session, const Analysis& analysis) {
  Table table{"devices",
              "Devices",
              session.computes_on_host()
                  ? "The host computes: it is busy while a call runs. Over the recorded steps."
                  : "Over the recorded steps and what lies between them; occupancy is estimated "
                    "from the launches and weighted by time.",
              {{"device", "number", Unit::count},
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
  const bool is_known = !is_gpu || tells_kernels(session);
  const auto of_gpu = [&](double value) { return is_gpu && is_known ? Cell(value) : Cell(); };
  for (const DeviceMetrics& m : analysis.devices)
    table.rows.push_back({std::int64_t{m.device}, m.name, is_known ? Cell(m.utilization) : Cell(),
                          of_gpu(m.sm_efficiency), of_gpu(m.occupancy), of_gpu(m.tensor_core_share),
                          of_gpu(m.copy_share), is_gpu && is_known ? cell(m.launch_gap_ns) : Cell(),
                          is_known ? cell(m.other_gap_ns) : Cell()});
  add_measured(analysis.devices, table);
  return table;
}

}  // namespace warpstep::profiler::analysis
