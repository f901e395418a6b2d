#include <algorithm>
#include <map>
#include <unordered_map>

#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler::analysis {
namespace {

// Where a layer's time of a phase goes; none: of no call.
double* phase_of(LayerRow& row, const std::string& phase) {
  if (phase == "forward" || phase == "loss") return &row.forward_ns;
  if (phase == "data_grad") return &row.data_grad_ns;
  if (phase == "weight_grad") return &row.weight_grad_ns;
  if (phase == "update") return &row.update_ns;
  return nullptr;
}

struct LayerSums {
  LayerRow row;
  double runs = 0, least_ns = 0;
  bool is_known = true;  // least_ns
};

void add(const CallRow& call, double steps, const Peaks& peaks, LayerSums& sums) {
  const double ns = static_cast<double>(call.total_ns) / steps;
  const double runs = static_cast<double>(call.count) / steps;
  sums.row.ns += ns;
  if (double* phase = phase_of(sums.row, call.phase)) *phase += ns;
  sums.row.flops += call.flops * runs;
  sums.row.bytes += call.bytes * runs;
  sums.row.share += call.share;
  sums.runs += runs;
  const double least = least_ns(call.flops, call.bytes, peaks);
  sums.least_ns += least * runs;
  sums.is_known = sums.is_known && (least > 0 || call.flops + call.bytes <= 0);
}

}  // namespace

std::vector<LayerRow> layer_rows(const std::vector<CallRow>& calls, const StepIndex& steps,
                                 const Peaks& peaks) {
  const double n = std::max(1.0, static_cast<double>(steps.size()));
  std::vector<LayerSums> layers;
  std::unordered_map<std::string, std::size_t> index;
  for (const CallRow& call : calls) {
    const std::string& name = call.call < 0 ? call.title : call.layer;
    const auto [at, is_new] = index.try_emplace(name, layers.size());
    if (is_new) layers.emplace_back().row.layer = name;
    add(call, n, peaks, layers[at->second]);
  }
  std::vector<LayerRow> rows;
  for (LayerSums& layer : layers) {
    LayerRow& row = layer.row;
    row.calls = static_cast<std::uint64_t>(layer.runs + 0.5);
    row.flops_per_second = ratio(1e9 * row.flops, row.ns);
    row.bytes_per_second = ratio(1e9 * row.bytes, row.ns);
    if (layer.is_known) row.of_peak = ratio(layer.least_ns, row.ns);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<OpRow> op_rows(const std::vector<CallRow>& calls, const StepIndex& steps) {
  const double n = std::max(1.0, static_cast<double>(steps.size()));
  std::map<std::pair<std::string, std::string>, OpRow> by_op;
  for (const CallRow& call : calls) {
    OpRow& row = by_op[{call.call < 0 ? call.title : call.op, call.phase}];
    const double runs = static_cast<double>(call.count) / n;
    row.count += call.count;
    row.ns += static_cast<double>(call.total_ns) / n;
    row.share += call.share;
    row.flops += call.flops * runs;
    row.bytes += call.bytes * runs;
  }
  std::vector<OpRow> rows;
  for (auto& [key, row] : by_op) {
    row.op = key.first;
    row.phase = key.second;
    row.flops_per_second = ratio(1e9 * row.flops, row.ns);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OpRow& a, const OpRow& b) { return a.ns > b.ns; });
  return rows;
}

}  // namespace warpstep::profiler::analysis
