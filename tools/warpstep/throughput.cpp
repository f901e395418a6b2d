#include "tools/warpstep/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/core/cpu_isa.h"
#include "engine/core/cpu_peak.h"
#include "engine/core/cpus.h"
#include "engine/core/text.h"
#include "profiler/analysis/table.h"

namespace warpstep::tools {
namespace {

// NVIDIA's data sheets: TFLOP/s of dense matrix products with fp32 sums, and GB/s of memory, 0
// where products of one name differ in it.
struct DataSheet {
  std::string_view product;  // the beginning of the device's name
  double bits16, tf32, fp32, bandwidth;
};
constexpr std::array data_sheets{
    DataSheet{"NVIDIA A100", 312, 156, 19.5, 0},
    DataSheet{"NVIDIA H100 80GB HBM3", 989.4, 494.7, 66.9, 3350},
    DataSheet{"NVIDIA H100 PCIe", 756, 378, 51, 2000},
    DataSheet{"NVIDIA H200 (", 989.4, 494.7, 66.9, 4800},  // not the NVL, which is slower
    DataSheet{"NVIDIA L40S", 362, 183, 91.6, 864},
    DataSheet{"NVIDIA L4 (", 121, 60, 30.3, 300},
};

const DataSheet* data_sheet_of(const std::string& device) {
  if (device.find(" MIG ") != std::string::npos) return nullptr;  // a part of the product
  const auto found = std::ranges::find_if(
      data_sheets, [&](const DataSheet& sheet) { return device.starts_with(sheet.product); });
  return found == data_sheets.end() ? nullptr : &*found;
}

// The roofline's time of a step, in seconds: the mean of the steps of an update.
double floor_of(const Program& step, const Roofline& roofline) {
  const Graph& graph = step.graph();
  double floor = 0;
  for (const Call& call : step.calls()) {
    Cost cost = call.cost;
    cost.flops = call.executed_flops();
    floor += graph.share_of_steps(graph.nodes[idx(call.node)]) * roofline.seconds(cost);
  }
  return floor;
}

}  // namespace

double model_flops(const Graph& step) {
  double flops = 0;
  for (const Node& node : step.nodes) {
    if (node.phase == Phase::update || is_measure(node.op)) continue;
    // One of its five products computes the scores again.
    const double share = std::holds_alternative<AttentionGrad>(node.op) ? 4.0 / 5 : 1;
    flops += share * step.cost(node).flops;
  }
  return flops;
}

Peak data_sheet_peak(const std::string& name, const std::string& precision) {
  const DataSheet* const sheet = data_sheet_of(name);
  if (!sheet) return {};
  const double tflops = precision == "fp32"   ? sheet->fp32
                        : precision == "tf32" ? sheet->tf32
                                              : sheet->bits16;
  return {1e12 * tflops,
          fmt::format("data sheet of {}, {}", name.substr(0, name.find(" (")), precision)};
}

Roofline data_sheet_roofline(const std::string& device, const std::string& precision) {
  const DataSheet* const sheet = data_sheet_of(device);
  if (!sheet || sheet->bandwidth <= 0) return {};
  return {data_sheet_peak(device, precision).flops_per_second, 1e9 * sheet->bandwidth};
}

std::string floor_line(const Program& step, const std::string& device,
                       const std::string& precision) {
  const Roofline roofline = data_sheet_roofline(device, precision);
  if (roofline.bytes_per_second <= 0) return {};
  const Peak peak = data_sheet_peak(device, precision);
  const double floor = floor_of(step, roofline);
  const std::int64_t steps = step.graph().steps_per_update();
  return fmt::format(
      "floor       {}{}: each call at the longer of its FLOPs at {:.0f} TFLOP/s and its bytes at "
      "{:.1f} TB/s ({})\n",
      profiler::quantity(1e9 * floor, profiler::Unit::ns),
      steps > 1 ? fmt::format(", mean of the {} steps of an update", steps) : "",
      1e-12 * peak.flops_per_second, 1e-12 * roofline.bytes_per_second, peak.source);
}

Peak arithmetic_peak(const Device& device, const std::string& precision) {
  if (device.backend->name() == "cuda")
    return data_sheet_peak(device.backend->describe(), precision);
  if (device.threads == 0) return {};  // the ref backend
  const bool bf16 = precision == "bf16";
  // More threads than CPUs share them: each thread's own CPU time would count a CPU twice.
  const int cpus = device.pinning.places.team.empty() ? static_cast<int>(allowed_cpus().size()) : 0;
  const int threads = cpus > 0 ? std::min(device.threads, cpus) : device.threads;
  return {measure_peak_flops(threads, bf16, device.pinning.places.team),
          fmt::format("measured: multiply-adds of {}, {}",
                      bf16 ? name(bf16_isa()) : name(cpu_isa()), counted(threads, "thread"))};
}

double Throughput::utilisation(double step_seconds) const {
  if (peak.flops_per_second <= 0 || step_seconds <= 0) return 0;
  return flops_per_step / step_seconds / peak.flops_per_second;
}

std::string Throughput::text(double step_seconds) const {
  if (flops_per_step <= 0 || step_seconds <= 0) return {};
  std::string text =
      profiler::quantity(flops_per_step / step_seconds, profiler::Unit::per_second_flops);
  if (const double share = utilisation(step_seconds); share > 0)
    text += fmt::format(" ({:.{}f} % of peak)", 100 * share, share < 0.1 ? 1 : 0);
  return text;
}

std::string_view above_peak_reason(double share) {
  return share > 1
             ? "above 100 %, because Winograd convolutions multiply less than the model counts"
             : "";
}

Json to_compute_json(const Throughput& throughput, double step_seconds) {
  auto json = Json::object();
  if (throughput.flops_per_step <= 0 || step_seconds <= 0) return json;
  json["model_flops_per_step"] = throughput.flops_per_step;
  json["model_tflops_per_second"] = 1e-12 * throughput.flops_per_step / step_seconds;
  if (const double share = throughput.utilisation(step_seconds); share > 0)
    json.update({{"peak_tflops_per_second", 1e-12 * throughput.peak.flops_per_second},
                 {"peak_source", throughput.peak.source},
                 {"mfu", share}});
  return json;
}

Json roofline_json(const Program& step, const Json& peaks, const std::string& precision,
                   double step_seconds) {
  if (!peaks.contains("flops_per_second") || !peaks.contains("bytes_per_second") ||
      step_seconds <= 0)
    return Json::object();
  const double flops_per_second = peaks["flops_per_second"].at(precision);
  const double bytes_per_second = peaks["bytes_per_second"];
  const double floor = floor_of(step, {flops_per_second, bytes_per_second});
  return {{"floor_ms", 1e3 * floor}, {"share", floor / step_seconds}};
}

}  // namespace warpstep::tools
