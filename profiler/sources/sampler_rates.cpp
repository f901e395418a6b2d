// What two readings of the machine tell together.
#include <fmt/format.h>

#include <algorithm>

#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {
namespace {

// Per second; nothing for a counter that went backwards.
std::optional<double> rate(std::uint64_t before, std::uint64_t after, double seconds) {
  if (after < before) return std::nullopt;
  return static_cast<double>(after - before) / seconds;
}

template <class Counters>
const Counters* named(const std::vector<Counters>& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&name](const Counters& one) { return one.name == name; });
  return at == all.end() ? nullptr : &*at;
}

void add_cpus(const MachineReading& before, const MachineReading& after,
              std::vector<Metric>& metrics) {
  // Cores come in the same order but for those that were switched on or off in between.
  auto then = before.cpus.begin();
  for (const CpuTicks& now : after.cpus) {
    while (then != before.cpus.end() && then->core < now.core) ++then;
    if (then == before.cpus.end() || then->core != now.core) continue;
    if (now.total <= then->total || now.busy < then->busy) continue;
    const double percent = 100 * static_cast<double>(now.busy - then->busy) /
                           static_cast<double>(now.total - then->total);
    // Idle time may step back a little, then busy grows by more than the total.
    metrics.push_back(
        {now.core < 0 ? "cpu %" : fmt::format("cpu {} %", now.core), std::min(percent, 100.0)});
  }
}

void add_disks(const MachineReading& before, const MachineReading& after, double seconds,
               std::vector<Metric>& metrics) {
  double read = 0, written = 0, busy = 0;
  bool any = false;
  for (const DiskCounters& now : after.disks) {
    const DiskCounters* then = named(before.disks, now.name);
    if (!then) continue;
    const auto reads = rate(then->read_bytes, now.read_bytes, seconds);
    const auto writes = rate(then->written_bytes, now.written_bytes, seconds);
    const auto ms = rate(then->busy_ms, now.busy_ms, seconds);
    if (!reads || !writes || !ms) continue;
    any = true;
    read += *reads;
    written += *writes;
    busy = std::max(busy, std::min(*ms / 10, 100.0));  // 1000 ms a second is 100 %
  }
  if (!any) return;
  metrics.push_back({"disk read bytes/s", read});
  metrics.push_back({"disk write bytes/s", written});
  metrics.push_back({"disk busy %", busy});
}

void add_networks(const MachineReading& before, const MachineReading& after, double seconds,
                  std::vector<Metric>& metrics) {
  double received = 0, sent = 0;
  bool any = false;
  for (const NetworkCounters& now : after.networks) {
    const NetworkCounters* then = named(before.networks, now.name);
    if (!then) continue;
    const auto in = rate(then->received_bytes, now.received_bytes, seconds);
    const auto out = rate(then->sent_bytes, now.sent_bytes, seconds);
    if (!in || !out) continue;
    any = true;
    received += *in;
    sent += *out;
  }
  if (!any) return;
  metrics.push_back({"network received bytes/s", received});
  metrics.push_back({"network sent bytes/s", sent});
}

}  // namespace

std::vector<Metric> levels(const MachineReading& now) {
  std::vector<Metric> metrics;
  const auto add = [&metrics](const char* name, const std::optional<std::uint64_t>& value) {
    if (value) metrics.push_back({name, static_cast<double>(*value)});
  };
  add("process rss bytes", now.resident_bytes);
  add("memory available bytes", now.memory.available_bytes);
  add("swap used bytes", now.memory.swap_used_bytes);
  return metrics;
}

std::vector<Metric> rates(const MachineReading& before, const MachineReading& after,
                          double ticks_per_second) {
  std::vector<Metric> metrics;
  if (after.at_ns <= before.at_ns) return metrics;
  const double seconds = static_cast<double>(after.at_ns - before.at_ns) * 1e-9;
  add_cpus(before, after, metrics);
  if (before.process_ticks && after.process_ticks)
    if (const auto ticks = rate(*before.process_ticks, *after.process_ticks, seconds))
      metrics.push_back({"process cpu %", 100 * *ticks / ticks_per_second});
  add_disks(before, after, seconds, metrics);
  add_networks(before, after, seconds, metrics);
  return metrics;
}

}  // namespace warpstep::profiler
