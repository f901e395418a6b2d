#include "profiler/analysis/device.h"

#include <algorithm>
#include <limits>

#include "profiler/analysis/categories.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

using namespace analysis;

namespace {

// What ran on one device, clipped to the windows.
struct Ran {
  std::vector<Interval> kernels, copies;  // merged
  double occupied_ns = 0, weight_ns = 0, tensor_ns = 0;
  std::vector<std::pair<std::uint64_t, std::int64_t>> blocks;  // (ns, blocks that begin or end)
};

// First step's begin to last step's end of each run of recorded steps without a gap in numbers.
std::vector<Interval> window_times(const Session& session, const StepIndex& steps) {
  std::vector<Interval> spans;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool continues =
        i > 0 && session.steps[steps.step(i)].step == session.steps[steps.step(i - 1)].step + 1;
    if (continues)
      spans.back().end_ns = steps.times()[i].end_ns;
    else
      spans.push_back(steps.times()[i]);
  }
  return merged(std::move(spans));
}

std::uint64_t blocks_of(const Activity& kernel) {
  // More than a device holds is as good as all: min(1, blocks a multiprocessor).
  std::uint64_t blocks = 1;
  for (const std::uint64_t extent : kernel.grid)
    blocks = std::min<std::uint64_t>(blocks * std::min<std::uint64_t>(extent, 1U << 30), 1U << 30);
  return blocks;
}

Launch launch_of(const Activity& kernel) {
  return {kernel.grid, kernel.block, kernel.registers, kernel.smem_static + kernel.smem_dynamic};
}

// The part of a kernel's time within the windows, usually one piece.
void add_kernel(const Device& device, const Activity& kernel, bool is_on_tensor_cores,
                const std::vector<Interval>& windows, Ran& ran) {
  const Interval whole{kernel.start_ns, kernel.end_ns};
  const auto first =
      std::upper_bound(windows.begin(), windows.end(), whole.begin_ns,
                       [](std::uint64_t at, const Interval& w) { return at < w.end_ns; });
  if (first == windows.end() || first->begin_ns >= whole.end_ns) return;
  const std::span<const Interval> from(first, windows.end());
  const double occupied = occupancy(device, launch_of(kernel)).estimated;
  const auto blocks = static_cast<std::int64_t>(blocks_of(kernel));
  for (const Interval& piece : intersection(std::span(&whole, 1), from)) {
    const double ns = static_cast<double>(piece.end_ns - piece.begin_ns);
    ran.kernels.push_back(piece);
    ran.occupied_ns += occupied * ns;
    ran.weight_ns += ns;
    if (is_on_tensor_cores) ran.tensor_ns += ns;
    ran.blocks.emplace_back(piece.begin_ns, blocks);
    ran.blocks.emplace_back(piece.end_ns, -blocks);
  }
}

Ran find_ran(const Session& session, const Device& device, const std::vector<Interval>& windows) {
  Ran ran;
  std::vector<signed char> tensor(session.names.size(), -1);  // by name; -1: not asked yet
  for (const Activity& a : session.activities) {
    if (a.device != device.id) continue;
    if (a.what == What::copy) ran.copies.push_back({a.start_ns, a.end_ns});
    if (a.what != What::kernel) continue;
    if (tensor[a.name] < 0) tensor[a.name] = uses_tensor_cores(session.name(a.name)) ? 1 : 0;
    add_kernel(device, a, tensor[a.name] == 1, windows, ran);
  }
  ran.kernels = merged(std::move(ran.kernels));
  ran.copies = intersection(merged(std::move(ran.copies)), windows);
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

// Utilisation of each bucket; what lies between windows is left out.
void find_timeline(const std::vector<Interval>& windows, const std::vector<Interval>& kernels,
                   DeviceMetrics& metrics) {
  const std::uint64_t all = total_ns(windows);
  metrics.bucket_ns = 1000;
  while ((all + metrics.bucket_ns - 1) / metrics.bucket_ns > 100) metrics.bucket_ns *= 10;
  const std::uint64_t bucket = metrics.bucket_ns;
  std::vector<std::uint64_t> busy((all + bucket - 1) / bucket);
  std::uint64_t passed = 0;  // in the windows before
  std::size_t k = 0;
  for (const Interval& window : windows) {
    for (; k < kernels.size() && kernels[k].begin_ns < window.end_ns; ++k) {
      std::uint64_t at = passed + (kernels[k].begin_ns - window.begin_ns);
      const std::uint64_t end = passed + (kernels[k].end_ns - window.begin_ns);
      while (at < end) {
        const std::uint64_t next = std::min(end, (at / bucket + 1) * bucket);
        busy[at / bucket] += next - at;
        at = next;
      }
    }
    passed += window.end_ns - window.begin_ns;
  }
  for (std::size_t i = 0; i < busy.size(); ++i) {
    const std::uint64_t width = std::min(bucket, all - i * bucket);
    metrics.timeline.push_back(static_cast<double>(busy[i]) / static_cast<double>(width));
  }
}

// A gap is the launch's fault when that began only after the kernel before had ended.
void find_gaps(const Session& session, std::uint32_t device, const StepIndex& steps,
               const Launches& launches, DeviceMetrics& metrics) {
  std::uint64_t end = 0;
  std::vector<Interval> late, other;
  for (const Activity& kernel : session.activities) {
    if (kernel.what != What::kernel || kernel.device != device) continue;
    if (end != 0 && kernel.start_ns > end) {
      const Activity* launch = launches.find(kernel.correlation);
      auto& gaps = launch != nullptr && launch->start_ns > end ? late : other;
      gaps.push_back({end, kernel.start_ns});
    }
    end = std::max(end, kernel.end_ns);
  }
  metrics.launch_gap_ns = total_ns(intersection(late, steps.times()));
  metrics.other_gap_ns = total_ns(intersection(other, steps.times()));
}

double share(double part_ns, double of_ns) {
  return of_ns > 0 ? part_ns / of_ns : 0;
}

DeviceMetrics metrics_of(const Session& session, const Device& device, const StepIndex& steps,
                         const Launches& launches) {
  DeviceMetrics metrics{.device = device.id,
                        .name = session.name(device.name),
                        .measured = measured_shares(session, device.id)};
  const std::vector<Interval> windows = window_times(session, steps);
  if (windows.empty()) return metrics;
  Ran ran = find_ran(session, device, windows);
  const double all = static_cast<double>(total_ns(windows));
  metrics.utilization = share(static_cast<double>(total_ns(ran.kernels)), all);
  metrics.sm_efficiency = share(busy_multiprocessors_ns(ran, device), all);
  metrics.occupancy = share(ran.occupied_ns, ran.weight_ns);
  metrics.tensor_core_share = share(ran.tensor_ns, ran.weight_ns);
  metrics.copy_share = share(static_cast<double>(total_ns(ran.copies)), all);
  find_timeline(windows, ran.kernels, metrics);
  find_gaps(session, device.id, steps, launches, metrics);
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

DeviceMetrics metrics_of_host(const Session& session, const StepIndex& steps) {
  DeviceMetrics metrics{.name = host_name(session)};
  const std::vector<Interval> windows = window_times(session, steps);
  if (windows.empty()) return metrics;
  const std::vector<Interval> calls = intersection(
      merged(by_category(session, {})[static_cast<std::size_t>(Category::kernel)]), windows);
  metrics.utilization =
      share(static_cast<double>(total_ns(calls)), static_cast<double>(total_ns(windows)));
  find_timeline(windows, calls, metrics);
  std::vector<Interval> gaps;
  for (std::size_t i = 1; i < calls.size(); ++i)
    if (calls[i - 1].end_ns < calls[i].begin_ns)
      gaps.push_back({calls[i - 1].end_ns, calls[i].begin_ns});
  metrics.other_gap_ns = total_ns(intersection(gaps, steps.times()));
  return metrics;
}

}  // namespace

std::vector<DeviceMetrics> device_metrics(const Session& session) {
  const StepIndex steps(session);
  if (session.computes_on_host()) return {metrics_of_host(session, steps)};
  const Launches launches(session);
  std::vector<DeviceMetrics> all;
  for (const Device& device : session.devices)
    all.push_back(metrics_of(session, device, steps, launches));
  return all;
}

}  // namespace warpstep::profiler
