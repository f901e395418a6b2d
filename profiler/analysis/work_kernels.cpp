#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/analysis/device.h"
#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler::analysis {
namespace {

using Extents = std::array<std::uint32_t, 3>;
using Key =
    std::tuple<std::uint32_t, std::uint32_t, Extents, Extents, std::uint32_t, std::uint64_t>;

void take(std::uint64_t ns, KernelRow& row) {
  row.min_ns = row.count == 0 ? ns : std::min(row.min_ns, ns);
  row.max_ns = std::max(row.max_ns, ns);
  row.total_ns += ns;
  ++row.count;
}

std::string extents_text(const Extents& e) {
  return fmt::format("{}x{}x{}", e[0], e[1], e[2]);
}

// A kernel launched alike, on devices that are alike.
KernelRow kernel_row(const Session& session, const Key& key) {
  const auto& [name, device_id, grid, block, registers, shared] = key;
  KernelRow row{.kernel = session.name(name),
                .launch = fmt::format("grid {} block {}, {} registers, {} B", extents_text(grid),
                                      extents_text(block), registers, shared),
                .tensor_cores = uses_tensor_cores(session.name(name))};
  const std::uint32_t id = device_id;
  const auto device = std::find_if(session.devices.begin(), session.devices.end(),
                                   [&](const Device& d) { return d.id == id; });
  if (device == session.devices.end() || device->multiprocessors == 0) return row;
  row.blocks_per_multiprocessor =
      static_cast<double>(grid[0]) * grid[1] * grid[2] / device->multiprocessors;
  const Launch launch{grid, block, registers,
                      static_cast<std::uint32_t>(std::min<std::uint64_t>(shared, UINT32_MAX))};
  row.occupancy = occupancy(*device, launch).estimated;
  return row;
}

std::vector<KernelRow> device_kernels(const Session& session, const StepIndex& steps) {
  std::map<Key, KernelRow> by_key;
  for (const Activity& a : session.activities) {
    if (a.what != What::kernel || steps.at(a.start_ns) < 0) continue;
    const Key key{a.name,  a.device,    a.grid,
                  a.block, a.registers, std::uint64_t{a.smem_static} + a.smem_dynamic};
    const auto [at, is_new] = by_key.try_emplace(key);
    if (is_new) at->second = kernel_row(session, key);
    take(a.end_ns - a.start_ns, at->second);
  }
  std::vector<KernelRow> rows;
  for (auto& [key, row] : by_key) rows.push_back(std::move(row));
  return rows;
}

// Where the host computes, its library's implementations are what kernels are on a device.
std::vector<KernelRow> host_kernels(const Session& session, const StepIndex& steps,
                                    const std::vector<ProgramCall>& calls) {
  std::map<std::string, KernelRow> by_name;
  for (const Span& span : session.spans) {
    if (session.kind(span) != Kind::call || steps.at(span.begin_ns) < 0) continue;
    const bool is_known = span.arg < calls.size() && !calls[span.arg].implementation.empty();
    const std::string& name = is_known ? calls[span.arg].implementation : session.name(span.name);
    take(span.end_ns - span.begin_ns, by_name[name]);
  }
  std::vector<KernelRow> rows;
  for (auto& [name, row] : by_name) {
    row.kernel = name;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<KernelRow> kernel_rows(const Session& session, const StepIndex& steps,
                                   const std::vector<ProgramCall>& calls) {
  std::vector<KernelRow> rows = session.computes_on_host() ? host_kernels(session, steps, calls)
                                                           : device_kernels(session, steps);
  double all = 0;
  for (const KernelRow& row : rows) all += static_cast<double>(row.total_ns);
  for (KernelRow& row : rows) {
    row.mean_ns = ratio(static_cast<double>(row.total_ns), static_cast<double>(row.count));
    row.share = ratio(static_cast<double>(row.total_ns), all);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.total_ns > b.total_ns; });
  return rows;
}

}  // namespace warpstep::profiler::analysis
