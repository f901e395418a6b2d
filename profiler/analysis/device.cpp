#include "profiler/analysis/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>
#include <utility>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::array<std::pair<std::uint64_t, const char*>, 5> reasons{{{0x04, power_cap.data()},
                                                                        {0x08, "hardware slowdown"},
                                                                        {0x20, "thermal"},
                                                                        {0x40, "hardware thermal"},
                                                                        {0x80, "power brake"}}};

}  // namespace

std::vector<Throttle> throttled(const Session& session) {
  std::vector<Throttle> found;
  for (const Device* const device : run_devices(session)) {
    const std::string metric = fmt::format("gpu {} throttle reasons", device->id);
    std::size_t samples = 0, slowed = 0;
    std::uint64_t seen = 0;
    for (const Sample& sample : session.samples) {
      if (session.name(sample.name) != metric || sample.value < 0 || sample.value > 9e15) continue;
      ++samples;
      std::uint64_t mask = 0;
      for (const auto& [bit, why] : reasons) mask |= static_cast<std::uint64_t>(sample.value) & bit;
      slowed += mask != 0 ? 1 : 0;
      seen |= mask;
    }
    if (slowed == 0) continue;
    Throttle throttle{device->id, static_cast<double>(slowed) / static_cast<double>(samples), ""};
    for (const auto& [bit, why] : reasons)
      if ((seen & bit) != 0) throttle.why += (throttle.why.empty() ? "" : ", ") + std::string(why);
    found.push_back(throttle);
  }
  return found;
}

std::uint64_t blocks_of(const Activity& kernel) {
  std::uint64_t blocks = 1;
  for (const std::uint64_t extent : kernel.grid)
    blocks = std::min<std::uint64_t>(blocks * std::min<std::uint64_t>(extent, 1U << 30), 1U << 30);
  return blocks;
}

std::vector<double> divided_times(const Session& session) {
  struct Event {
    std::uint64_t at_ns = 0;
    std::size_t activity = 0;
  };
  std::vector<Event> events;  // begins, and ends
  const bool skips_graphs = has_graph_kernels(session);
  for (std::size_t i = 0; i < session.activities.size(); ++i) {
    const Activity& a = session.activities[i];
    if (!is_on_device(a) || a.start_ns >= a.end_ns || (a.what == What::graph && skips_graphs))
      continue;
    events.push_back({a.start_ns, i});
    events.push_back({a.end_ns, i});
  }
  std::ranges::sort(events, {}, &Event::at_ns);
  std::vector<double> ns(session.activities.size());
  std::vector<std::size_t> kernels, others;  // that run
  std::uint64_t before = 0;
  for (const Event& event : events) {
    const std::vector<std::size_t>& running = kernels.empty() ? others : kernels;
    for (const std::size_t i : running)
      ns[i] += static_cast<double>(event.at_ns - before) / static_cast<double>(running.size());
    before = event.at_ns;
    auto& of = session.activities[event.activity].what == What::kernel ? kernels : others;
    if (std::erase(of, event.activity) == 0) of.push_back(event.activity);
  }
  return ns;
}

namespace {

// What ran on one device, clipped to the recorded steps.
struct Ran {
  std::vector<Interval> kernels, copies;  // merged
  double occupied_ns = 0, weight_ns = 0;
  double tensor_ns = 0, computing_ns = 0;  // the latter without exchanges between ranks
  std::vector<std::pair<std::uint64_t, std::int64_t>> blocks;  // (ns, blocks that begin or end)
};

// The recorded steps. What lies between those whose numbers follow each other is of evaluations and
// checkpoints: only torch_tb_profiler counts it.
std::vector<Interval> counted_times(const View& view, const ReportRules& rules) {
  const StepIndex& steps = view.recorded;
  std::vector<Interval> times;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<Step>& all = view.session.steps;
    const bool continues =
        rules.tb_compatible && i > 0 && all[steps.step(i)].step == all[steps.step(i - 1)].step + 1;
    if (continues)
      times.back().end_ns = steps.times()[i].end_ns;
    else
      times.push_back(steps.times()[i]);
  }
  return merged(std::move(times));
}

Launch launch_of(const Activity& kernel) {
  return {kernel.grid, kernel.block, kernel.registers, kernel.smem_static + kernel.smem_dynamic};
}

enum class Units : std::uint8_t { exchange, plain, tensor };

Units units_of(std::string_view kernel) {
  if (is_communication(kernel)) return Units::exchange;
  return uses_tensor_cores(kernel) ? Units::tensor : Units::plain;
}

// The part of a kernel's time within the steps, usually one piece.
void add_kernel(const Device& device, const Activity& kernel, Units units,
                const std::vector<Interval>& times, Ran& ran) {
  const Interval whole{kernel.start_ns, kernel.end_ns};
  const auto first =
      std::upper_bound(times.begin(), times.end(), whole.begin_ns,
                       [](std::uint64_t at, const Interval& w) { return at < w.end_ns; });
  if (first == times.end() || first->begin_ns >= whole.end_ns) return;
  const std::span<const Interval> from(first, times.end());
  const double occupied = occupancy(device, launch_of(kernel)).estimated;
  const auto blocks = static_cast<std::int64_t>(blocks_of(kernel));
  for (const Interval& piece : intersection(std::span(&whole, 1), from)) {
    const double ns = static_cast<double>(piece.end_ns - piece.begin_ns);
    ran.kernels.push_back(piece);
    ran.occupied_ns += occupied * ns;
    ran.weight_ns += ns;
    if (units == Units::tensor) ran.tensor_ns += ns;
    if (units != Units::exchange) ran.computing_ns += ns;
    ran.blocks.emplace_back(piece.begin_ns, blocks);
    ran.blocks.emplace_back(piece.end_ns, -blocks);
  }
}

Ran find_ran(const Session& session, const Device& device, const std::vector<Interval>& times) {
  Ran ran;
  std::vector<std::optional<Units>> units(session.names.size());  // by name, once asked
  for (const Activity& a : session.activities) {
    if (a.device != device.id) continue;
    if (a.what == What::copy) ran.copies.push_back({a.start_ns, a.end_ns});
    if (a.what != What::kernel) continue;
    if (!units[a.name]) units[a.name] = units_of(session.name(a.name));
    add_kernel(device, a, *units[a.name], times, ran);
  }
  ran.kernels = merged(std::move(ran.kernels));
  ran.copies = intersection(merged(std::move(ran.copies)), times);
  return ran;
}

// The integral of min(1, blocks running / multiprocessors), in ns.
double busy_multiprocessors_ns(Ran& ran, const Device& device) {
  if (device.multiprocessors == 0) return 0;
  std::sort(ran.blocks.begin(), ran.blocks.end());
  double sum = 0;
  std::int64_t running = 0;
  std::uint64_t before = 0;
  for (const auto& [at, blocks] : ran.blocks) {
    const double filled = static_cast<double>(running) / device.multiprocessors;
    sum += std::min(1.0, filled) * static_cast<double>(at - before);
    running += blocks;
    before = at;
  }
  return sum;
}

// Utilisation of each bucket; what lies between steps is left out.
void find_timeline(const std::vector<Interval>& times, const std::vector<Interval>& kernels,
                   DeviceMetrics& metrics) {
  const std::uint64_t all = total_ns(times);
  metrics.bucket_ns = 1000;
  while ((all + metrics.bucket_ns - 1) / metrics.bucket_ns > 100) metrics.bucket_ns *= 10;
  const std::uint64_t bucket = metrics.bucket_ns;
  std::vector<std::uint64_t> busy((all + bucket - 1) / bucket);
  std::uint64_t passed = 0;  // in those before
  std::size_t k = 0;
  for (const Interval& time : times) {
    for (; k < kernels.size() && kernels[k].begin_ns < time.end_ns; ++k) {
      std::uint64_t at = passed + (kernels[k].begin_ns - time.begin_ns);
      const std::uint64_t end = passed + (kernels[k].end_ns - time.begin_ns);
      while (at < end) {
        const std::uint64_t next = std::min(end, (at / bucket + 1) * bucket);
        busy[at / bucket] += next - at;
        at = next;
      }
    }
    passed += time.end_ns - time.begin_ns;
  }
  for (std::size_t i = 0; i < busy.size(); ++i) {
    const std::uint64_t width = std::min(bucket, all - i * bucket);
    metrics.timeline.push_back(static_cast<double>(busy[i]) / static_cast<double>(width));
  }
}

// When kernels were launched. cublasLt's launches may have no record: theirs were before the next
// recorded one, and where that came after the kernel began, the device had caught up with the host.
class LaunchTimes {
 public:
  explicit LaunchTimes(const View& view) : view_(view) {
    for (const Activity& activity : view.session.activities)
      if (activity.what == What::api)
        recorded_.emplace_back(activity.correlation, activity.start_ns);
    std::sort(recorded_.begin(), recorded_.end());
  }

  // 0: not known.
  std::uint64_t of(const Activity& kernel) const {
    if (const Activity* launch = view_.launches.find(kernel.correlation)) return launch->start_ns;
    if (kernel.graph_node != 0) return 0;
    const auto next = std::lower_bound(recorded_.begin(), recorded_.end(),
                                       std::pair{kernel.correlation, std::uint64_t{0}});
    return next == recorded_.end() ? 0 : std::min(next->second, kernel.start_ns);
  }

 private:
  const View& view_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> recorded_;  // correlation, begin
};

// A gap is due to the launch when that began only after the previous kernel had ended.
void find_gaps(const View& view, const std::vector<Interval>& waits, std::uint32_t device,
               DeviceMetrics& metrics) {
  const LaunchTimes launches(view);
  std::uint64_t end = 0;
  std::vector<Interval> late, other;
  for (const Activity& kernel : view.session.activities) {
    if (kernel.what != What::kernel || kernel.device != device) continue;
    if (end != 0 && kernel.start_ns > end) {
      auto& gaps = launches.of(kernel) > end ? late : other;
      gaps.push_back({end, kernel.start_ns});
    }
    end = std::max(end, kernel.end_ns);
  }
  // A launch that waited for data came late for that reason.
  late = difference(late, waits);
  metrics.launch_gap_ns = total_ns(intersection(late, view.recorded.times()));
  metrics.other_gap_ns = total_ns(intersection(other, view.recorded.times()));
}

double share(double part_ns, double of_ns) {
  return of_ns > 0 ? part_ns / of_ns : 0;
}

DeviceMetrics metrics_of(const View& view, const std::vector<Interval>& waits, const Device& device,
                         const ReportRules& rules) {
  const Session& session = view.session;
  DeviceMetrics metrics{.device = device.id,
                        .name = session.name(device.name),
                        .is_described = device.multiprocessors > 0,
                        .of_windows = rules.tb_compatible,
                        .measured = measured_shares(view, device.id)};
  const std::vector<Interval> times = counted_times(view, rules);
  if (times.empty()) return metrics;
  Ran ran = find_ran(session, device, times);
  const double all = static_cast<double>(total_ns(times));
  metrics.utilization = share(static_cast<double>(total_ns(ran.kernels)), all);
  metrics.sm_efficiency = share(busy_multiprocessors_ns(ran, device), all);
  metrics.occupancy = share(ran.occupied_ns, ran.weight_ns);
  metrics.tensor_core_share = share(ran.tensor_ns, ran.computing_ns);
  metrics.copy_share = share(static_cast<double>(total_ns(ran.copies)), all);
  find_timeline(times, ran.kernels, metrics);
  find_gaps(view, waits, device.id, metrics);
  return metrics;
}

std::string host_name(const Session& session) {
  for (const char* path : {"/cpu/model", "/host/cpu/model", "/machine/cpu/model"}) {
    const Json::json_pointer at(path);
    if (session.stamp.is_object() && session.stamp.contains(at) && session.stamp[at].is_string())
      return session.stamp[at].get<std::string>();
  }
  return "host";
}

DeviceMetrics metrics_of_host(const View& view, const ReportRules& rules) {
  DeviceMetrics metrics{.name = host_name(view.session), .of_windows = rules.tb_compatible};
  const std::vector<Interval> times = counted_times(view, rules);
  if (times.empty()) return metrics;
  const std::vector<Interval> calls = intersection(
      merged(by_category(view, {})[static_cast<std::size_t>(Category::kernel)]), times);
  metrics.utilization =
      share(static_cast<double>(total_ns(calls)), static_cast<double>(total_ns(times)));
  find_timeline(times, calls, metrics);
  std::vector<Interval> gaps;
  for (std::size_t i = 1; i < calls.size(); ++i)
    if (calls[i - 1].end_ns < calls[i].begin_ns)
      gaps.push_back({calls[i - 1].end_ns, calls[i].begin_ns});
  metrics.other_gap_ns = total_ns(intersection(gaps, view.recorded.times()));
  return metrics;
}

}  // namespace

std::vector<DeviceMetrics> device_metrics(const View& view, const ReportRules& rules) {
  if (view.session.computes_on_host()) return {metrics_of_host(view, rules)};
  const std::vector<Interval> waits =
      merged(by_category(view, {})[static_cast<std::size_t>(Category::data)]);
  std::vector<DeviceMetrics> all;
  for (const Device& device : view.session.devices)
    all.push_back(metrics_of(view, waits, device, rules));
  return all;
}

namespace {

// The tables of cuda_occupancy.h; what it computes for compute capability 6.1 and later.
struct Rules {
  std::uint64_t register_unit = 256;  // allocated to a warp
  std::uint64_t partitions = 4;       // of a multiprocessor, with registers of their own
  std::uint64_t shared_unit = 256;    // bytes
  std::uint64_t most_registers = 255;
  bool has_optin = false;

  explicit Rules(const Device& device) {
    if (device.compute_major >= 7) most_registers = 256;
    if (device.compute_major >= 8) shared_unit = 128;
    has_optin = device.compute_major >= 7;
  }
};

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t limit_of_registers(const Device& device, const Rules& rules, std::uint64_t warps,
                                 std::uint64_t registers) {
  const std::uint64_t of_warp = rounded_up(registers * device.warp_size, rules.register_unit);
  // The hardware checks a block as if it took a warp of every partition.
  if (of_warp * rounded_up(warps, rules.partitions) > device.registers_per_block) return 0;
  if (registers > rules.most_registers) return 0;
  if (of_warp == 0) return unlimited;
  const std::uint64_t warps_of_partition =
      device.registers_per_multiprocessor / rules.partitions / of_warp;
  return warps_of_partition * rules.partitions / warps;
}

std::uint64_t limit_of_shared_memory(const Device& device, const Rules& rules,
                                     std::uint64_t bytes) {
  const std::uint64_t reserved = device.reserved_shared_per_block;
  const std::uint64_t taken = rounded_up(bytes + reserved, rules.shared_unit);
  const std::uint64_t most = rules.has_optin
                                 ? std::max(device.shared_per_block, device.shared_per_block_optin)
                                 : device.shared_per_block;
  if (taken > most + reserved) return 0;
  return taken == 0 ? unlimited : device.shared_per_multiprocessor / taken;
}

double product(const std::array<std::uint32_t, 3>& extents) {
  return static_cast<double>(extents[0]) * extents[1] * extents[2];
}

}  // namespace

Occupancy occupancy(const Device& device, const Launch& launch) {
  Occupancy result;
  const double threads = product(launch.block), grid = product(launch.grid);
  const double slots = device.max_threads_per_multiprocessor;
  if (threads < 1 || grid < 1 || device.warp_size == 0 || slots < 1 || device.multiprocessors == 0)
    return result;
  const Rules rules(device);
  std::uint64_t of_threads = 0, of_registers = 0;
  if (threads <= device.max_threads_per_block) {
    const auto count = static_cast<std::uint64_t>(threads);
    const std::uint64_t warps = (count + device.warp_size - 1) / device.warp_size;
    of_threads = device.max_threads_per_multiprocessor / device.warp_size / warps;
    of_registers = limit_of_registers(device, rules, warps, launch.registers);
  }
  result.blocks = static_cast<int>(
      std::min<std::uint64_t>({of_threads, of_registers, device.max_blocks_per_multiprocessor,
                               limit_of_shared_memory(device, rules, launch.shared_bytes)}));
  const double blocks = result.blocks, multiprocessors = device.multiprocessors;
  result.estimated = std::min(1.0, std::min(blocks, grid / multiprocessors) * threads / slots);
  if (blocks > 0) result.waves = grid / (blocks * multiprocessors);
  return result;
}

namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <std::size_t n>
bool has_any(std::string_view text, const std::array<std::string_view, n>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return has(text, part); });
}

// Names of the units themselves, of instructions, and of families that know no other way.
constexpr std::array<std::string_view, 28> units{"hmma",          "_imma",
                                                 "_dmma",         "hgmma",
                                                 "qgmma",         "igmma",
                                                 "wgmma",         "wmma",
                                                 "tcgen05",       "utcmma",
                                                 "mma_sync",      "mma.sync",
                                                 "tensorop",      "tensor16x",
                                                 "tensor8x",      "nvjet",
                                                 "warpgroup",     "warp_specialized",
                                                 "flash_fwd",     "flash_bwd",
                                                 "flash_attn",    "fmha",
                                                 "xmma",          "sdpa_sm",
                                                 "narrow_kernel", "narrow_weight_kernel",
                                                 "stem_product",  "stem_weight_kernel"};
// Older names that torch_tb_profiler lists besides. Its conv2d_c1_k1 is not one of them: that is a
// convolution of each channel by itself, without a product of matrices.
constexpr std::array<std::string_view, 3> older{"dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
                                                "conv1x1"};
// Parts of kernels of the same families that run on the ordinary units, and the steps around the
// product: conversions, reductions of partial sums.
constexpr std::array<std::string_view, 10> ordinary{
    "simt",       "_ffma",         "c1_k1",           "splitkreduce", "nchwtonhwc",
    "nhwctonchw", "splitk_reduce", "splitkv_combine", "dot_do_o",     "convert_dq"};

// Shapes of the instructions, as in s16816gemm and h884cudnn: a letter for the type summed in, then
// m, n and k.
bool has_instruction_shape(std::string_view text) {
  static constexpr std::array<std::string_view, 7> shapes{"884",   "1688",   "8816", "16816",
                                                          "16832", "161616", "8832"};
  static constexpr std::string_view types = "hsicd";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (!has(types, text.substr(i, 1))) continue;
    if (i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0) continue;
    std::size_t end = i + 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    const std::string_view digits = text.substr(i + 1, end - i - 1);
    if (std::find(shapes.begin(), shapes.end(), digits) != shapes.end()) return true;
  }
  return false;
}

}  // namespace

bool uses_tensor_cores(std::string_view kernel) {
  std::string text(kernel);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (has_any(text, ordinary)) return false;
  // Attention's kernels for devices before tensor cores.
  if (has(text, "fmha") && has(text, "_sm50")) return false;
  return has_any(text, units) || has_any(text, older) || has_instruction_shape(text);
}

namespace {

// A sample is of the time before it, and of a step if that begins in one.
bool is_of_a_step(const View& view, std::uint64_t at_ns) {
  constexpr std::uint64_t period_ns = 1'000'000;  // of PmSampling
  return view.in_steps(at_ns - std::min(at_ns, period_ns / 2));
}

std::optional<double> mean_share(const View& view, const std::string& metric) {
  double sum = 0;
  std::size_t count = 0;
  for (const Sample& sample : view.metrics.of(metric)) {
    if (!is_of_a_step(view, sample.at_ns)) continue;
    sum += sample.value;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count) / 100;
}

}  // namespace

MeasuredShares measured_shares(const View& view, std::uint32_t device) {
  const auto mean = [&](const char* what) {
    return mean_share(view, fmt::format("gpu {} {}", device, what));
  };
  return {mean("SM active %"), mean("tensor pipe %"), mean("DRAM %")};
}

std::string short_kernel_name(std::string_view kernel) {
  std::string name(kernel);
  for (const std::string_view part : {"(anonymous namespace)::", "warpstep::cuda::"})
    for (std::size_t at = 0; (at = name.find(part, at)) != std::string::npos;)
      name.erase(at, part.size());
  constexpr std::string_view nothing = "void ";
  if (name.starts_with(nothing)) name.erase(0, nothing.size());
  int depth = 0;  // of template arguments, which may have casts
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && i > 0) return name.substr(0, i);
  }
  return name;
}

bool has_kernels(const Session& session) {
  return std::ranges::find(session.activities, What::kernel, &Activity::what) !=
         session.activities.end();
}

}  // namespace warpstep::profiler
