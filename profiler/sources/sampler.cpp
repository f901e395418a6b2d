#include "profiler/sources/sampler.h"

#include <fmt/format.h>
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

#include "engine/core/record.h"
#include "engine/core/thread.h"
#include "profiler/sources/sampler_cores.h"
#include "profiler/sources/sampler_proc.h"
#include "profiler/sources/sampler_programs.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t max_waiting_samples = std::size_t{1} << 20;  // 24 MiB

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

std::chrono::nanoseconds thinned(std::chrono::nanoseconds pause, std::chrono::nanoseconds age) {
  return std::max(pause, age / 7200);
}

struct Sampler::Parts {
  SamplerOptions options;
  double ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));

  std::mutex reading;  // held while a sample is taken
  std::unique_ptr<Nvml> nvml;
  std::optional<MachineReading> last;
  CoreSources cores;
  std::optional<CoreReading> last_cores;
  OtherPrograms programs;

  std::mutex mutex;  // protects the following; never held while the machine is read
  std::condition_variable wake;
  bool stopping = false;
  bool is_dense = false;
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
      nvml = std::make_unique<Nvml>(functions, options.gpus);
    else
      note(std::move(why));
  }

  void keep(std::uint64_t at_ns, const std::vector<Metric>& metrics) {
    const std::lock_guard lock(mutex);
    if (samples.size() + metrics.size() > max_waiting_samples) {
      constexpr const char* text =
          "samples of the machine were dropped: they were not written in time";
      if (noted.insert(text).second) notes.emplace_back(text);
      return;
    }
    for (const Metric& metric : metrics)
      samples.push_back(
          {at_ns, record::Name(metric.name, record::Kind::metric).id(), 0, metric.value});
  }

  // A failing file or library only adds a note.
  void look() noexcept try {
    const std::lock_guard lock(reading);
    MachineReading now = read_machine(options.proc, options.siblings);
    CoreReading now_cores = read_cores(cores, record::named_threads());
    if (now_cores.memory && now.memory.available_bytes)
      now.memory.available_bytes =
          std::min(*now.memory.available_bytes, now_cores.memory->free_bytes);
    std::vector<Metric> metrics = levels(now);
    std::ranges::move(levels(now_cores), std::back_inserter(metrics));
    if (last) std::ranges::move(rates(*last, now, ticks_per_second), std::back_inserter(metrics));
    if (last_cores) std::ranges::move(rates(*last_cores, now_cores), std::back_inserter(metrics));
    std::ranges::move(programs.look(options.proc, options.siblings, ticks_per_second),
                      std::back_inserter(metrics));
    if (nvml) {
      std::ranges::move(nvml->read(), std::back_inserter(metrics));
      for (std::string& text : nvml->take_notes()) note(std::move(text));
    }
    if (options.receive)
      options.receive(metrics);
    else
      keep(now.at_ns, metrics);
    for (std::string& problem : now.problems) note("not sampled: " + std::move(problem));
    last = std::move(now);
    last_cores = std::move(now_cores);
  } catch (const std::exception& error) {
    note_failure(error.what());
  } catch (...) {
    note_failure("unknown error");
  }

  void note_failure(const char* what) noexcept {
    try {
      note(fmt::format("sampling the machine failed: {}", what));
    } catch (...) {  // no memory for the note
    }
  }

  // Whether to continue. It starts again when dense() changes.
  bool sleep(std::chrono::nanoseconds pause, std::chrono::steady_clock::time_point begin) {
    std::unique_lock lock(mutex);
    for (bool changes = true; changes && !stopping;) {
      const bool before = is_dense, thins = options.thins && !is_dense;
      const auto age = std::chrono::steady_clock::now() - begin;
      changes = wake.wait_for(lock, thins ? thinned(pause, age) : pause,
                              [&] { return stopping || is_dense != before; });
    }
    return !stopping;
  }

  void work() noexcept {
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::nanoseconds pause = options.period;
    for (;;) {
      if (!sleep(pause, begin)) return;
      const std::chrono::nanoseconds before = thread_time();
      look();
      pause = pause_after(thread_time() - before, options.period);
    }
  }
};

Sampler::Sampler(const SamplerOptions& options) : parts_(std::make_unique<Parts>()) {
  parts_->options = options;
  parts_->cores = find_core_sources(options.proc, options.proc.parent_path());
  if (!options.gpus.empty()) parts_->open_nvml();
  parts_->look();
  why_ = try_start_thread(parts_->thread, "sampler", [parts = parts_.get()] { parts->work(); });
  if (why_.empty()) return;
  why_ = "the machine is sampled only once: " + why_;
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

void Sampler::dense(bool on) {
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->is_dense = on;
  }
  parts_->wake.notify_all();
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
