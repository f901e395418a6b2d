// Kernels that could be shorter.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "profiler/analysis/findings_rules.h"
#include "profiler/analysis/stall_text.h"

namespace warpstep::profiler::advice {
namespace {

constexpr double least_eligible = 0.10;  // of the calls' time
constexpr double no_tensor_cores = 0.05;
constexpr double least_unaligned = 0.05;  // of a step, like the following
constexpr double least_layout = 0.05;
constexpr double least_small = 0.10;
constexpr double small_kernel_ns = 5'000, many_kernels = 100;  // mean; a step
// What a kernel takes that does nothing: launch latency on the device and its last wave.
constexpr double empty_kernel_ns = 2'000;
constexpr double least_layer = 0.20, low_peak = 0.20;

bool has_any(std::string text, std::initializer_list<std::string_view> parts) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

// Multiplications of matrices in some guise: what tensor cores do.
bool is_eligible(const CallRow& call) {
  return has_any(call.op, {"conv", "linear", "matmul", "gemm", "attention", "dense"});
}

const DeviceMetrics* first_device(const Facts& facts) {
  return facts.on_host || facts.analysis.devices.empty() ? nullptr
                                                         : &facts.analysis.devices.front();
}

}  // namespace

void find_tensor_cores(const Facts& facts, std::vector<Finding>& findings) {
  const DeviceMetrics* const metrics = first_device(facts);
  const std::string precision = facts.option("precision", "fp32");
  if (metrics == nullptr || (precision != "fp32" && precision != "tf32")) return;
  const std::uint32_t major = facts.session.devices.front().compute_major;
  double eligible = 0, all = 0;
  for (const CallRow& call : facts.analysis.work.calls) {
    all += call.ns;
    if (is_eligible(call)) eligible += call.ns;
  }
  if (major < 7 || all <= 0 || eligible < least_eligible * all) return;
  const bool unused = metrics->tensor_core_share < no_tensor_cores;
  const std::string flag = major >= 8 ? "--precision bf16" : "--precision fp16";
  // Values of 16 bits are half the bytes, and tensor cores multiply them many times as fast: half
  // of the time is a cautious guess; tf32 is on them already, and gains the bytes.
  findings.push_back(
      {.key = unused ? "tensor-cores" : "half-precision",
       .text = unused ? "Tensor cores are idle." : "The step computes with values of 32 bits.",
       .evidence =
           fmt::format("--precision {}; convolutions and matrix products take {}, tensor "
                       "cores run for {} of the kernels' time",
                       precision, facts.of_step(eligible), share_text(metrics->tensor_core_share)),
       .advice = fmt::format("use {}", flag),
       .flag = flag,
       .gain_ns = facts.unless_waiting(eligible * (unused ? 0.5 : 0.25))});
}

void find_unaligned(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.on_host) return;
  double ns = 0;
  const CallRow* longest = nullptr;
  for (const CallRow& call : facts.analysis.work.calls) {
    if (!call.tensor_cores.starts_with("no:") || !has_any(call.tensor_cores, {"multiple"}))
      continue;
    ns += call.ns;
    if (longest == nullptr || call.ns > longest->ns) longest = &call;
  }
  if (longest == nullptr || ns <= least_unaligned * facts.step_ns) return;
  findings.push_back(
      {.key = "unaligned-channels",
       .text = "Channels that are not multiples of 8 keep calls off tensor cores.",
       .evidence = fmt::format("{}; the longest is {} {} ({})", facts.of_step(ns), longest->title,
                               longest->phase, longest->tensor_cores.substr(4)),
       .advice = "round the model's channels up to multiples of 8",
       .gain_ns = facts.unless_waiting(ns / 2)});
}

void find_layout_transposes(const Facts& facts, std::vector<Finding>& findings) {
  double ns = 0;
  std::string example;
  const auto add = [&](const std::string& name, double time) {
    if (example.empty()) example = name;
    ns += time;
  };
  for (const KernelRow& kernel : facts.analysis.work.kernels)
    if (has_any(kernel.kernel, {"nchwtonhwc", "nhwctonchw", "transpose", "converttensor"}))
      add(kernel.kernel, static_cast<double>(kernel.total_ns) / facts.steps);
  if (facts.on_host)
    for (const CallRow& call : facts.analysis.work.calls)
      if (has_any(call.op, {"reorder", "transpose"})) add(call.title, call.ns);
  if (ns <= least_layout * facts.step_ns) return;
  Finding finding{.key = "layout-transposes",
                  .text = "Values are copied from one layout to another.",
                  .evidence = fmt::format("{}, among them {}", facts.of_step(ns), example),
                  .advice = "look in `warpstep explain` for the calls that want another layout",
                  .gain_ns = facts.unless_waiting(ns)};
  if (!facts.on_host && !fields::flag(facts.options, "autotune")) {
    finding.flag = "--autotune";
    finding.advice = "use --autotune: algorithms are measured with what they do to layouts";
  }
  findings.push_back(finding);
}

void find_small_kernels(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.on_host) return;
  double ns = 0, count = 0;
  for (const KernelRow& kernel : facts.analysis.work.kernels) {
    ns += static_cast<double>(kernel.total_ns) / facts.steps;
    count += static_cast<double>(kernel.count) / facts.steps;
  }
  if (count < many_kernels || ns >= small_kernel_ns * count || ns < least_small * facts.step_ns)
    return;
  Finding finding{
      .key = "small-kernels",
      .text = "The step is a storm of small kernels.",
      .evidence =
          fmt::format("{:.0f} kernels a step of {} on average", count, time_text(ns / count)),
      .advice = "a larger batch has the same kernels for more images",
      .flag = facts.larger_batch(),
      .gain_ns = facts.unless_waiting(count * std::min(empty_kernel_ns, ns / count) / 2)};
  const Json& no_fuse = fields::child(facts.options, "no_fuse");
  if (no_fuse.is_array() && !no_fuse.empty()) {
    finding.flag = "";  // nothing to add to the command
    finding.advice = "leave out --no-fuse: fused calls are fewer kernels";
  }
  findings.push_back(finding);
}

void find_slow_layer(const Facts& facts, std::vector<Finding>& findings) {
  for (const LayerRow& layer : facts.analysis.work.layers) {
    if (layer.ns < least_layer * facts.step_ns || layer.of_peak <= 0 || layer.of_peak >= low_peak)
      continue;
    findings.push_back(
        {.key = "slow-layer",
         .text = fmt::format("Layer {} is far from what this machine can do.", layer.layer),
         .evidence = fmt::format("{}, at {} of what its work allows", facts.of_step(layer.ns),
                                 share_text(layer.of_peak)),
         .advice = "look at its calls' implementations and shapes in the table of calls"});
  }
}

}  // namespace warpstep::profiler::advice
