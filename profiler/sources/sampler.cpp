#include "profiler/sources/sampler.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "engine/core/thread.h"
#include "profiler/sources/sampler_nvml.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {

// What two readings of the machine tell together.

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

namespace {

constexpr std::size_t most_samples = std::size_t{1} << 20;  // 24 MiB that nobody takes

std::chrono::nanoseconds thread_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace

std::chrono::nanoseconds pause_after(std::chrono::nanoseconds cost,
                                     std::chrono::nanoseconds period) {
  return std::max(period, 200 * std::clamp<std::chrono::nanoseconds>(
                                    cost, std::chrono::nanoseconds(0), std::chrono::hours(1)));
}

struct Sampler::Parts {
  SamplerOptions options;
  double ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));

  std::mutex reading;  // held while a sample is taken
  std::unique_ptr<Nvml> nvml;
  std::optional<MachineReading> last;

  std::mutex mutex;  // of what follows; never held while anything is read
  std::condition_variable wake;
  bool stopping = false;
  std::vector<Sample> samples;
  std::vector<std::string> notes;
  std::set<std::string> noted;

  std::thread thread;

  void note(std::string text) {
    const std::lock_guard lock(mutex);
    if (noted.insert(text).second) notes.push_back(std::move(text));
  }

  void open_nvml() {
    std::string why;
    const NvmlFunctions functions = options.nvml ? *options.nvml : load_nvml(&why);
    if (why.empty())
      nvml = std::make_unique<Nvml>(functions);
    else
      note(std::move(why));
  }

  void keep(std::uint64_t at_ns, const std::vector<Metric>& metrics) {
    const std::lock_guard lock(mutex);
    if (samples.size() + metrics.size() > most_samples) {
      constexpr const char* text = "samples of the machine were dropped: nobody took them";
      if (noted.insert(text).second) notes.emplace_back(text);
      return;
    }
    for (const Metric& metric : metrics)
      samples.push_back(
          {at_ns, record::Name(metric.name, record::Kind::metric).id(), 0, metric.value});
  }

  // A file that vanishes, or a library gone mad, may do no more harm than a note.
  void look() noexcept try {
    const std::lock_guard lock(reading);
    MachineReading now = read_machine(options.proc);
    std::vector<Metric> metrics = levels(now);
    if (last) std::ranges::move(rates(*last, now, ticks_per_second), std::back_inserter(metrics));
    if (nvml) {
      std::ranges::move(nvml->read(), std::back_inserter(metrics));
      for (std::string& text : nvml->take_notes()) note(std::move(text));
    }
    keep(now.at_ns, metrics);
    for (std::string& problem : now.problems) note("not sampled: " + std::move(problem));
    last = std::move(now);
  } catch (const std::exception& error) {
    note_failure(error.what());
  } catch (...) {
    note_failure("for an unknown reason");
  }

  void note_failure(const char* what) noexcept {
    try {
      note(fmt::format("a sample of the machine failed: {}", what));
    } catch (...) {  // without memory for a note there is none
    }
  }

  void work() noexcept {
    std::chrono::nanoseconds pause = options.period;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        if (wake.wait_for(lock, pause, [this] { return stopping; })) return;
      }
      const std::chrono::nanoseconds before = thread_time();
      look();
      pause = pause_after(thread_time() - before, options.period);
    }
  }
};

Sampler::Sampler(const SamplerOptions& options) : parts_(std::make_unique<Parts>()) {
  parts_->options = options;
  if (options.gpu) parts_->open_nvml();
  parts_->look();
  why_ = try_start_thread(parts_->thread, "sampler", [parts = parts_.get()] { parts->work(); });
  if (why_.empty()) return;
  why_ = "the machine is sampled once only: " + why_;
  parts_->note(why_);
}

Sampler::~Sampler() {
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->stopping = true;
  }
  parts_->wake.notify_all();
  if (parts_->thread.joinable()) parts_->thread.join();
}

void Sampler::look() {
  parts_->look();
}

std::vector<Sample> Sampler::take() {
  const std::lock_guard lock(parts_->mutex);
  return std::exchange(parts_->samples, {});
}

std::vector<std::string> Sampler::notes() {
  const std::lock_guard lock(parts_->mutex);
  return parts_->notes;
}

}  // namespace warpstep::profiler
