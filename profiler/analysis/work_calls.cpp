#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler::analysis {
namespace {

// Whether an op is a product of matrices, which tensor cores are for.
bool is_product(std::string_view op) {
  return op.starts_with("conv") || op.starts_with("norm_conv") || op.starts_with("linear") ||
         op.find("matmul") != std::string_view::npos ||
         op.find("attention") != std::string_view::npos;
}

// cuBLAS and cuDNN want 16 bytes a row; what they cannot align, they compute the ordinary way.
std::string why_no_tensor_cores(const ProgramCall& call, const std::string& precision) {
  if (precision == "fp32") return "no: computed in fp32";
  const std::int64_t unit = precision == "tf32" ? 4 : 8;
  const bool is_aligned = std::all_of(call.last_extents.begin(), call.last_extents.end(),
                                      [&](std::int64_t extent) { return extent % unit == 0; });
  return is_aligned ? "no" : fmt::format("no: channels are not multiples of {}", unit);
}

std::string tensor_cores(const ProgramCall& call, const CallTimes& times,
                         const std::string& precision) {
  if (times.has_tensor_kernels) return "yes";
  if (!times.has_kernels || !is_product(call.op)) return "";
  return why_no_tensor_cores(call, precision);
}

std::string bound(const ProgramCall& call, const Peaks& peaks) {
  if (least_ns(call.flops, call.bytes, peaks) <= 0) return "";
  const double compute = call.flops > 0 ? call.flops / peaks.flops_per_second : 0;
  const double memory = call.bytes > 0 ? call.bytes / peaks.bytes_per_second : 0;
  return compute >= memory ? "compute" : "memory";
}

void take_times(const CallTimes& times, const StepIndex& steps, CallRow& row) {
  row.count = times.count;
  row.total_ns = times.total_ns;
  row.host_ns = times.host_ns;
  const std::size_t zeros = steps.size() - std::min(steps.size(), times.step_ns.size());
  row.ns = quantile(times.step_ns, zeros, 0.5);
  row.p95_ns = quantile(times.step_ns, zeros, 0.95);
  row.share = ratio(static_cast<double>(times.total_ns), static_cast<double>(steps.total_ns()));
}

CallRow call_row(std::size_t index, const ProgramCall& call, const CallTimes& times,
                 const StepIndex& steps, const Peaks& peaks) {
  CallRow row{.call = static_cast<int>(index),
              .title = call.title.empty() ? fmt::format("call {}", index + 1) : call.title,
              .layer = call.layer,
              .op = call.op,
              .phase = call.phase,
              .implementation = call.implementation,
              .inputs = call.inputs,
              .flops = call.flops,
              .bytes = call.bytes};
  take_times(times, steps, row);
  const double runs = static_cast<double>(times.count), ns = static_cast<double>(times.total_ns);
  row.flops_per_second = ratio(1e9 * call.flops * runs, ns);
  row.bytes_per_second = ratio(1e9 * call.bytes * runs, ns);
  row.of_peak = ratio(least_ns(call.flops, call.bytes, peaks) * runs, ns);
  row.bound = bound(call, peaks);
  return row;
}

}  // namespace

Peaks find_peaks(const Session& session) {
  return {std::max(0.0, number(part(session.peaks, "flops_per_second"), precision(session))),
          std::max(0.0, number(session.peaks, "bytes_per_second"))};
}

double least_ns(double flops, double bytes, const Peaks& peaks) {
  if (flops > 0 && peaks.flops_per_second <= 0) return 0;
  if (bytes > 0 && peaks.bytes_per_second <= 0) return 0;
  const double compute = flops > 0 ? flops / peaks.flops_per_second : 0;
  const double memory = bytes > 0 ? bytes / peaks.bytes_per_second : 0;
  return 1e9 * std::max(compute, memory);
}

std::vector<CallRow> call_rows(const Session& session, const StepIndex& steps,
                               const std::vector<ProgramCall>& calls, const AllTimes& times,
                               const Peaks& peaks) {
  const std::string asked = precision(session);
  std::vector<CallRow> rows;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rows.push_back(call_row(i, calls[i], times.calls[i], steps, peaks));
    rows.back().tensor_cores = tensor_cores(calls[i], times.calls[i], asked);
  }
  if (times.others.total_ns > 0) {
    CallRow row{.title = "(not of a call)"};
    take_times(times.others, steps, row);
    if (times.others.has_tensor_kernels) row.tensor_cores = "yes";
    rows.push_back(row);
  }
  return rows;
}

}  // namespace warpstep::profiler::analysis
