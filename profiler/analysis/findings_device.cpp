// Findings about a device that waits for the host, for copies or for others, a host that waits for
// it, and kernels that could be shorter.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "profiler/analysis/device_waits.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double least_copies = 0.05;  // of a step, like the following
constexpr double least_pageable = 0.01;
constexpr double least_launch_gaps = 0.10;
constexpr double least_sync = 0.05;
constexpr double least_fixed = 0.4;         // of a step on the host
constexpr double least_overhead = 0.50;     // host work that no kernel hides
constexpr double least_utilization = 0.50;  // torch_tb_profiler's

double launch_gaps(const Facts& facts) {
  double sum = 0;
  for (const DeviceMetrics& device : facts.analysis.devices)
    sum += static_cast<double>(device.launch_gap_ns);
  return sum / facts.steps;
}

bool is_launch_bound(const Facts& facts) {
  return !facts.on_host && launch_gaps(facts) > least_launch_gaps * facts.step_ns;
}

}  // namespace

void find_copies(const Facts& facts, std::vector<Finding>& findings) {
  const double copies = facts.part(Category::copy);
  if (facts.on_host || facts.share(Category::copy) <= least_copies) return;
  Finding finding{.key = "copies-exposed",
                  .text = "The device copies while no kernel runs.",
                  .evidence = facts.of_step(copies),
                  .gain_ns = facts.unless_waiting(copies)};
  const std::string tier = fields::text(facts.session.loader, "tier", facts.option("tier"));
  if (fields::text(facts.session.loader, "normalize", facts.option("normalize")) == "cpu") {
    finding.flag = "--normalize device";
    finding.advice = "use --normalize device: it copies bytes, a quarter of the size of floats";
    finding.gain_ns *= 0.75;
  } else if (tier != "resident" && !facts.reads_text()) {
    finding.flag = "--tier resident";
    finding.advice = "use --tier resident, if decoded images fit into the device's memory";
  } else {
    finding.advice =
        facts.reads_text()
            ? "look in the trace for the copies: a step's tokens are few bytes"
            : "look in the trace for the copies: the data set is on the device already";
    finding.gain_ns = 0;
  }
  findings.push_back(finding);
}

void find_pageable_copies(const Facts& facts, std::vector<Finding>& findings) {
  constexpr std::uint8_t pageable = 1, to_device = 1, to_host = 2;
  double ns = 0;
  std::uint64_t count = 0;
  // Those between steps are of evaluations and checkpoints, which no step waits for.
  for (const Activity& activity : facts.session.activities) {
    if (activity.what != What::copy || !facts.view.in_steps(activity.start_ns)) continue;
    const bool is_pageable =
        (activity.copy_kind == to_device && activity.source_memory == pageable) ||
        (activity.copy_kind == to_host && activity.target_memory == pageable);
    if (!is_pageable) continue;
    ns += static_cast<double>(activity.end_ns - activity.start_ns) / facts.steps;
    ++count;
  }
  if (ns <= least_pageable * facts.step_ns) return;
  findings.push_back({.key = "pageable-copies",
                      .text = "Copies go through pageable memory.",
                      .evidence = fmt::format("{} in {} copies", facts.of_step(ns), count),
                      .advice = "use pinned memory on the host: the driver copies pageable memory "
                                "twice, and the host waits",
                      .gain_ns = facts.unless_waiting(ns / 2)});
}

void find_launch_bound(const Facts& facts, std::vector<Finding>& findings) {
  if (!is_launch_bound(facts)) return;
  const double gaps = launch_gaps(facts);
  Finding finding{
      .key = "launch-bound",
      .text = "The device idles between kernels: each ends before the next one is launched.",
      .evidence = "launch gaps of " + facts.of_step(gaps)};
  if (fields::flag(facts.options, "no_graph")) {
    finding.advice = "leave out --no-graph: each step is then one launch";
    finding.gain_ns = facts.unless_waiting(gaps);
  } else {
    finding.flag = facts.larger_batch();
    finding.advice = "use a larger batch: the same launches compute more samples";
    finding.gain_ns = facts.unless_waiting(gaps / 2);
  }
  findings.push_back(finding);
}

void find_sync_bound(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.on_host || facts.share(Category::sync) <= least_sync) return;
  const auto [range, share] = longest_exposed_wait(facts.view);
  const double ns = facts.part(Category::sync);
  Finding finding{.key = "sync-bound",
                  .text = range.empty()
                              ? "A host call waits for the device in each step."
                              : fmt::format("A host call waits for the device: in \"{}\".", range),
                  .evidence = facts.of_step(ns),
                  .advice = "read results a few steps later instead of waiting for them",
                  .gain_ns = facts.unless_waiting(ns * share)};
  if (!range.empty())
    finding.evidence += fmt::format(", {} of it there", quantity(share, Unit::share));
  const std::int64_t log_every = fields::whole(facts.options, "log_every", 10);
  if (range == "observers" && log_every < 1000) {
    finding.flag = fmt::format("--log-every {}", 10 * std::max<std::int64_t>(1, log_every));
    finding.advice = fmt::format("log less often: {}", finding.flag);
  }
  findings.push_back(finding);
}

namespace {

// Of a step on the host: what it takes however small the batch is. A short call that is far from
// what its work takes at the machine's peak is mostly its overhead.
struct Fixed {
  double outside_ns = 0, update_ns = 0, short_ns = 0;
  double sum() const { return outside_ns + update_ns + short_ns; }
};

// Calls have their whole times. Where most steps waited for a core their medians have that, too:
// they are longer than the breakdown's kernels, and by that share no call's own.
double own_share(const Facts& facts) {
  double all = 0;
  for (const CallRow& call : facts.analysis.work.calls)
    if (!is_communication(call.op)) all += call.ns;
  return all > 0 ? std::min(1.0, facts.part(Category::kernel) / all) : 1;
}

Fixed fixed_of(const Facts& facts) {
  constexpr double short_call_ns = 50'000;
  // Observers, such as a slow terminal, cost as much beside a larger batch: find_slow_observers().
  Fixed fixed{.outside_ns = std::max(0.0, facts.part(Category::cpu) + facts.part(Category::other) -
                                              facts.range_ns("observers"))};
  const double own = own_share(facts);
  for (const CallRow& call : facts.analysis.work.calls) {
    if (is_communication(call.op)) continue;
    if (call.phase == "update")
      fixed.update_ns += own * call.ns;
    else if (call.ns < short_call_ns && call.of_peak > 0)
      fixed.short_ns += own * call.ns * (1 - std::min(1.0, call.of_peak));
  }
  return fixed;
}

bool is_mostly_fixed(const Facts& facts, const Fixed& fixed) {
  // What others take of a step does not depend on its batch either, and has a finding of its own.
  return fixed.sum() >= least_fixed * (facts.step_ns - facts.part(Category::core_wait));
}

// Of the second of a call's inputs, "f32 128x512, f32 512x512": of a layer its weights. 0: it has
// none.
double weight_bytes(const CallRow& call) {
  constexpr std::string_view between = ", ";
  const std::size_t at = call.inputs.find(between);
  if (at == call.inputs.npos) return 0;
  std::string_view operand = std::string_view(call.inputs).substr(at + between.size());
  operand = operand.substr(0, operand.find(between));
  const std::size_t space = operand.find(' ');
  if (space == operand.npos) return 0;
  const std::string_view type = operand.substr(0, space);
  double bytes = type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
  for (std::size_t i = space + 1; i < operand.size();) {
    const std::size_t end = std::min(operand.find('x', i), operand.size());
    double size = 0;
    for (; i < end; ++i) size = 10 * size + (operand[i] - '0');
    bytes *= size;
    i = end + 1;
  }
  return bytes;
}

// What calls that wait for memory take for the weights, or for their gradients, per step: these are
// as large with any batch.
double weights_ns(const Facts& facts) {
  const std::vector<CallRow>& calls = facts.analysis.work.calls;
  double sum = 0;
  for (const CallRow& call : calls) {
    if (call.bound != "memory" || call.bytes <= 0 || call.layer.empty()) continue;
    if (!call.op.starts_with("linear") && !call.op.starts_with("conv")) continue;
    const auto forward = std::ranges::find_if(calls, [&](const CallRow& other) {
      return other.layer == call.layer && other.phase == "forward" && call.op.starts_with(other.op);
    });
    if (forward != calls.end()) sum += call.ns * std::min(1.0, weight_bytes(*forward) / call.bytes);
  }
  return own_share(facts) * sum;
}

// Half as many batches of twice the size make the same update.
void find_small_parts(const Facts& facts, std::vector<Finding>& findings) {
  const Fixed fixed = fixed_of(facts);
  const double weights = weights_ns(facts), all = fixed.sum() + weights;
  if (all < least_fixed * (facts.step_ns - facts.part(Category::core_wait))) return;
  Finding finding{.key = "tiny-batch",
                  .text = "The batches that make an update are small.",
                  .evidence = fmt::format(
                      "what a batch of any size takes: {}, {} of it for reading weights and "
                      "writing their gradients",
                      facts.of_step(all), quantity(weights, Unit::ns)),
                  .flag = facts.larger_batch()};
  finding.advice = fmt::format(
      "use {}: updates stay as large, and only batch norms see other batches", finding.flag);
  finding.gain_least_ns = facts.unless_waiting(fixed.sum() / 2);
  finding.gain_most_ns = facts.unless_waiting(all / 2);
  finding.gain_ns = (finding.gain_least_ns + finding.gain_most_ns) / 2;
  findings.push_back(finding);
}

void find_tiny_batch_on_host(const Facts& facts, std::vector<Finding>& findings) {
  if (fields::whole(facts.options, "accumulate", 1) % 2 == 0) {
    find_small_parts(facts, findings);
    return;
  }
  const Fixed fixed = fixed_of(facts);
  if (!is_mostly_fixed(facts, fixed)) return;
  Finding finding{.key = "tiny-batch",
                  .text = "The fixed cost per step is high.",
                  .evidence = "optimiser, and host time between calls: " +
                              facts.of_step(fixed.outside_ns + fixed.update_ns),
                  .advice = "use a larger batch: it spreads the fixed cost over more samples",
                  .flag = facts.larger_batch(),
                  .gain_ns = facts.unless_waiting(fixed.sum() / 2)};
  if (fixed.short_ns > 0)
    finding.evidence +=
        fmt::format("; short calls that are mostly overhead: {}", facts.of_step(fixed.short_ns));
  findings.push_back(finding);
}

}  // namespace

void find_tiny_batch(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.on_host) return find_tiny_batch_on_host(facts, findings);
  const double overhead =
      facts.part(Category::runtime) + facts.part(Category::cpu) + facts.part(Category::other);
  if (is_launch_bound(facts) || overhead < least_overhead * facts.step_ns) return;
  findings.push_back({.key = "tiny-batch",
                      .text = "Kernels are short compared with the gaps between them.",
                      .evidence = fmt::format("kernels {}, gaps and host alone {}",
                                              quantity(facts.part(Category::kernel), Unit::ns),
                                              facts.of_step(overhead)),
                      .advice = "use a larger batch: kernels grow, and the gaps do not",
                      .flag = facts.larger_batch(),
                      .gain_ns = facts.unless_waiting(overhead / 2)});
}

void find_low_utilization(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.on_host) return;
  constexpr std::array<Category, 7> idle{
      Category::copy, Category::memset, Category::communication, Category::runtime, Category::data,
      Category::sync, Category::cpu};
  const auto largest = std::max_element(idle.begin(), idle.end(), [&](Category a, Category b) {
    return facts.part(a) < facts.part(b);
  });
  for (const DeviceMetrics& device : facts.analysis.devices) {
    // One without a kernel is not the run's, or kernels were not recorded.
    if (device.utilization >= least_utilization || device.utilization == 0) continue;
    const bool is_data = *largest == Category::data;
    Finding finding{
        .key = "low-utilization",
        .text = fmt::format("GPU {} is busy for {} of the steps' time.", device.device,
                            quantity(device.utilization, Unit::share)),
        .evidence = fmt::format("{} without a kernel",
                                facts.of_step(facts.step_ns - facts.part(Category::kernel))),
        .advice = is_data ? "make the loader faster first"
                          : "use a larger batch: it gives each kernel more work"};
    if (!is_data) finding.flag = facts.larger_batch();
    findings.push_back(finding);
  }
}

namespace {

constexpr double least_eligible = 0.10;  // of the calls' time
constexpr double no_tensor_cores = 0.05;
constexpr double least_unaligned = 0.05;  // of a step, like the following
constexpr double least_layout = 0.05;
constexpr double least_small = 0.10;
constexpr double small_kernel_ns = 5'000, many_kernels = 100;  // mean; per step
// An empty kernel: launch latency on the device and its last wave.
constexpr double empty_kernel_ns = 2'000;
constexpr double least_layer = 0.20, low_peak = 0.20;

bool has_any(std::string text, std::initializer_list<std::string_view> parts) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

const DeviceMetrics* metrics_of(const Facts& facts, const Device& device) {
  const auto found = std::ranges::find(facts.analysis.devices, device.id, &DeviceMetrics::device);
  return found == facts.analysis.devices.end() ? nullptr : &*found;
}

// In some guise: what tensor cores compute.
bool multiplies_matrices(const CallRow& call) {
  return has_any(call.op, {"conv", "linear", "matmul", "gemm", "attention", "dense"});
}

}  // namespace

void find_tensor_cores(const Facts& facts, std::vector<Finding>& findings) {
  const std::vector<const Device*> devices = run_devices(facts.session);
  const DeviceMetrics* const metrics =
      devices.empty() ? nullptr : metrics_of(facts, *devices.front());
  const std::string precision = facts.option("precision", "fp32");
  if (metrics == nullptr || (precision != "fp32" && precision != "tf32")) return;
  const std::uint32_t major = devices.front()->compute_major;
  double eligible = 0, all = 0;
  for (const CallRow& call : facts.analysis.work.calls) {
    all += call.ns;
    if (multiplies_matrices(call)) eligible += call.ns;
  }
  if (major < 7 || all <= 0 || eligible < least_eligible * all) return;
  const bool unused = metrics->tensor_core_share < no_tensor_cores;
  const std::string flag = major >= 8 ? "--precision bf16" : "--precision fp16";
  // Values of 16 bits are half the bytes, and tensor cores multiply them many times as fast: half
  // of the time is a cautious guess; tf32 is on them already, and gains the bytes.
  findings.push_back(
      {.key = unused ? "tensor-cores" : "half-precision",
       .text = unused ? "Tensor cores are idle." : "The step computes in 32 bits.",
       .evidence = fmt::format("--precision {}; convolutions and matrix products take {}, tensor "
                               "cores run for {} of the kernels' time",
                               precision, facts.of_step(eligible),
                               quantity(metrics->tensor_core_share, Unit::share)),
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
                  .advice = "look in `warpstep explain` for the calls that need another layout",
                  .gain_ns = facts.unless_waiting(ns)};
  if (!facts.on_host && !fields::flag(facts.options, "autotune")) {
    finding.flag = "--autotune";
    finding.advice =
        "use --autotune: it measures algorithms together with their layout conversions";
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
      .text = "The step consists of many small kernels.",
      .evidence = fmt::format("{:.0f} kernels per step of {} on average", count,
                              quantity(ns / count, Unit::ns)),
      .advice = "use a larger batch: the same kernels compute more samples",
      .flag = facts.larger_batch(),
      .gain_ns = facts.unless_waiting(count * std::min(empty_kernel_ns, ns / count) / 2)};
  const Json& no_fuse = fields::child(facts.options, "no_fuse");
  if (no_fuse.is_array() && !no_fuse.empty()) {
    finding.flag = "";  // nothing to add to the command
    finding.advice = "leave out --no-fuse: fused calls are fewer kernels";
  }
  findings.push_back(finding);
}

namespace {

constexpr double least_few_blocks = 0.10;  // of a step

// "conv1/conv.wgrad 54.0 us on 31 blocks, ...", the longest three.
std::string few_blocks_text(const Facts& facts) {
  const std::vector<FewBlocks>& calls = facts.analysis.fill.calls;
  const std::vector<ProgramCall>& program = facts.view.program;
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(calls.size(), 3); ++i) {
    const auto call = static_cast<std::size_t>(calls[i].call);
    const bool is_known = calls[i].call >= 0 && call < program.size();
    text += fmt::format("{}{} {} on {:.0f}", i == 0 ? "" : ", ",
                        is_known ? program[call].title : "no call of the step",
                        quantity(calls[i].ns, Unit::ns), calls[i].blocks);
  }
  return text;
}

// Whether most of the time is of calls for which libraries have several algorithms.
bool can_be_tuned(const Facts& facts) {
  double tuned = 0, all = 0;
  for (const FewBlocks& few : facts.analysis.fill.calls) {
    const auto call = static_cast<std::size_t>(few.call);
    all += few.ns;
    if (few.call >= 0 && call < facts.view.program.size() &&
        has_any(facts.view.program[call].op, {"conv", "linear", "matmul"}))
      tuned += few.ns;
  }
  return tuned > 0.5 * all;
}

}  // namespace

// Calls with small grids, when none runs beside them that fills the device.
void find_few_blocks(const Facts& facts, std::vector<Finding>& findings) {
  const DeviceFill& fill = facts.analysis.fill;
  if (fill.few_ns < least_few_blocks * facts.step_ns) return;
  double idle = 0;  // of the device: at most what more blocks gain
  for (const FewBlocks& call : fill.calls)
    idle += call.ns * (1 - call.blocks / std::max(1U, fill.multiprocessors));
  Finding finding{.key = "few-blocks",
                  .text = "Kernels use few of the device's multiprocessors.",
                  .evidence = fmt::format("{} with thread blocks for fewer than half of {}: {}",
                                          facts.of_step(fill.few_ns), fill.multiprocessors,
                                          few_blocks_text(facts)),
                  .gain_ns = facts.unless_waiting(idle / 2)};
  finding.gain_most_ns = facts.unless_waiting(idle);
  if (can_be_tuned(facts) && !fields::flag(facts.options, "autotune")) {
    finding.flag = "--autotune";
    finding.advice = fmt::format(
        "use --autotune: it measures algorithms, also those that divide the work into more blocks; "
        "after that {}: more samples are more blocks",
        facts.larger_batch());
  } else {
    finding.flag = facts.larger_batch();
    finding.advice = "use a larger batch: more samples are more blocks";
  }
  findings.push_back(finding);
}

namespace {

constexpr std::uint64_t many_calls = 100;  // of one layer in a step
constexpr double least_many = 0.05;        // of a step

// "768 token_loss.dgrad (3.58 ms, 146 MiB)", the longest three of a layer's ops.
std::string ops_of(const Facts& facts, const std::string& layer) {
  struct Sum {
    std::string op;
    double calls = 0, ns = 0, bytes = 0;
  };
  std::vector<Sum> sums;
  for (const CallRow& call : facts.analysis.work.calls) {
    if (call.layer != layer) continue;
    auto sum = std::ranges::find(sums, call.op, &Sum::op);
    if (sum == sums.end()) sum = sums.insert(sums.end(), {.op = call.op});
    const double runs = static_cast<double>(call.count) / facts.steps;
    sum->calls += runs;
    sum->ns += static_cast<double>(call.total_ns) / facts.steps;
    sum->bytes += call.bytes * runs;
  }
  std::ranges::stable_sort(sums, std::ranges::greater(), &Sum::ns);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(sums.size(), 3); ++i)
    text += fmt::format("{}{:.0f} {} ({}, {})", i == 0 ? "" : ", ", sums[i].calls, sums[i].op,
                        quantity(sums[i].ns, Unit::ns), quantity(sums[i].bytes, Unit::bytes));
  return text;
}

}  // namespace

// A loop over samples or tokens in a model's code: each call has its overhead, and its adjoint
// often writes a gradient of the whole input.
void find_many_calls(const Facts& facts, std::vector<Finding>& findings) {
  for (const LayerRow& layer : facts.analysis.work.layers) {
    if (layer.calls < many_calls || layer.ns < least_many * facts.step_ns) continue;
    findings.push_back(
        {.key = "many-calls",
         .text = fmt::format("Layer {} is {} calls per step.", layer.layer, layer.calls),
         .evidence = fmt::format("{}: {}", facts.of_step(layer.ns), ops_of(facts, layer.layer)),
         .advice = "replace the loop in the model by one op over all its rows"});
  }
}

namespace {

// "h.11.ln_1": "h.11", the first numbered block; "" without one.
std::string block_of(const std::string& layer) {
  for (std::size_t begin = 0; begin < layer.size();) {
    const std::size_t end = std::min(layer.find_first_of("./", begin), layer.size());
    const std::string_view name(layer.data() + begin, end - begin);
    if (begin > 0 && !name.empty() &&
        std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; }))
      return layer.substr(0, end);
    begin = end + 1;
  }
  return "";
}

// An op and its gradients in all blocks of the model.
struct Repeated {
  std::string op;
  double ns = 0, possible_ns = 0;  // per step; what they would take at the machine's peak
  std::set<std::string> blocks;
};

std::vector<Repeated> repeated_ops(const Work& work) {
  std::vector<Repeated> all;
  for (const CallRow& call : work.calls) {
    const std::string block = block_of(call.layer), op = call.op.substr(0, call.op.find('.'));
    if (block.empty() || call.of_peak <= 0) continue;
    auto one = std::ranges::find(all, op, &Repeated::op);
    if (one == all.end()) one = all.insert(all.end(), {.op = op});
    one->ns += call.ns;
    one->possible_ns += call.ns * std::min(1.0, call.of_peak);
    one->blocks.insert(block);
  }
  return all;
}

}  // namespace

// What is small in each block of a model may be much in all of them together.
void find_slow_blocks(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_repeated = 0.10;  // of a step
  constexpr std::size_t least_blocks = 3;
  // find_tiny_batch() reports these short calls.
  if (facts.on_host && is_mostly_fixed(facts, fixed_of(facts))) return;
  if (facts.lacks_cores()) return;
  for (const Repeated& one : repeated_ops(facts.analysis.work)) {
    if (one.blocks.size() < least_blocks || one.ns < least_repeated * facts.step_ns) continue;
    const double of_peak = one.possible_ns / one.ns;
    if (of_peak >= low_peak) continue;
    findings.push_back(
        {.key = "slow-blocks",
         .text =
             fmt::format("{} in {} blocks: {} of a step, far below this machine's peak.", one.op,
                         one.blocks.size(), quantity(one.ns / facts.step_ns, Unit::share)),
         .evidence = fmt::format("{} with its gradients, {} of the possible speed",
                                 facts.of_step(one.ns), quantity(of_peak, Unit::share)),
         .advice = fmt::format("look at the implementations and shapes of {} in the table of "
                               "calls: what shortens one shortens all {} blocks",
                               one.op, one.blocks.size())});
  }
}

void find_slow_layer(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.lacks_cores()) return;
  for (const LayerRow& layer : facts.analysis.work.layers) {
    if (layer.layer.empty()) continue;  // updates and exchanges
    if (layer.ns < least_layer * facts.step_ns || layer.of_peak <= 0 || layer.of_peak >= low_peak)
      continue;
    findings.push_back(
        {.key = "slow-layer",
         .text = fmt::format("Layer {} runs far below this machine's peak.", layer.layer),
         .evidence = fmt::format("{}, {} of the possible speed", facts.of_step(layer.ns),
                                 quantity(layer.of_peak, Unit::share)),
         .advice = "look at the implementations and shapes of its calls in the table of calls"});
  }
}

}  // namespace warpstep::profiler
