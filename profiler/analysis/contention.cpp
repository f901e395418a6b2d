#include "profiler/analysis/contention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace warpstep::profiler {
namespace {

// Shares of the CPU are counted in ticks of 10 ms: over less than a second they are coarse.
constexpr std::uint64_t least_for_ticks_ns = 1'000'000'000;

constexpr std::string_view delay_suffix = " run delay %", on_cpu_suffix = " on cpu %";

// The sampled metrics with the time that each value stands for: a rate covers the time since the
// sample before it.
class SampledRates {
 public:
  explicit SampledRates(const SampledMetrics& metrics) : metrics_(metrics) {
    std::vector<std::uint64_t> times;
    for (const auto& [name, samples] : metrics_.by_name())
      if (!name.starts_with("gpu "))  // may come from another source
        for (const Sample& sample : samples) times.push_back(sample.at_ns);
    std::ranges::sort(times);
    std::uint64_t before = 0;
    for (const std::uint64_t at : times) before_.try_emplace(at, std::exchange(before, at));
  }

  const auto& values() const { return metrics_.by_name(); }

  // Integral of a rate over `within`, and the time of its samples there, both in ns.
  struct Sum {
    double value_ns = 0, covered_ns = 0;
  };
  Sum sum(const std::string& name, const std::vector<Interval>& within) const {
    Sum sum;
    for (const Sample& sample : metrics_.of(name)) {
      const double ns = overlap_ns(sample.at_ns, within);
      sum.value_ns += sample.value * ns;
      sum.covered_ns += ns;
    }
    return sum;
  }
  std::optional<double> mean(const std::string& name, const std::vector<Interval>& within) const {
    const Sum of = sum(name, within);
    if (of.covered_ns <= 0) return std::nullopt;
    return of.value_ns / of.covered_ns;
  }
  std::optional<double> most(const std::string& name) const {
    const MetricLevel level = level_of(metrics_.of(name));
    return level.count > 0 ? std::optional(level.most) : std::nullopt;
  }
  double covered_ns(const std::vector<Interval>& within) const {
    double ns = 0;
    for (const auto& [at, before] : before_) ns += overlap_ns(at, within);
    return ns;
  }

 private:
  double overlap_ns(std::uint64_t at_ns, const std::vector<Interval>& within) const {
    const auto before = before_.find(at_ns);
    if (before == before_.end()) return 0;
    std::uint64_t ns = 0;
    auto one = std::ranges::upper_bound(within, before->second, {}, &Interval::end_ns);
    for (; one != within.end() && one->begin_ns < at_ns; ++one)
      ns += std::min(one->end_ns, at_ns) - std::max(one->begin_ns, before->second);
    return static_cast<double>(ns);
  }

  const SampledMetrics& metrics_;
  std::map<std::uint64_t, std::uint64_t> before_;  // of a sample's time: the previous one's
};

std::vector<Interval> windows_of(const View& view) {
  std::vector<Interval> within;
  for (const Window& window : view.windows) within.push_back({window.begin_ns, window.end_ns});
  const std::vector<Step>& steps = view.session.steps;
  if (within.empty() && !view.counted.empty())
    within.push_back({steps[view.counted.front()].begin_ns, steps[view.counted.back()].end_ns});
  return merged(std::move(within));
}

std::vector<Interval> widened(std::vector<Interval> within) {
  const std::uint64_t all = total_ns(within);
  if (all >= least_for_ticks_ns) return within;
  const std::uint64_t more = (least_for_ticks_ns - all) / 2;
  for (Interval& one : within) {
    one.begin_ns -= std::min(one.begin_ns, more);
    one.end_ns += more;
  }
  return merged(std::move(within));
}

int machine_cores(const Session& session) {
  return static_cast<int>(
      fields::whole(fields::child(session.stamp, "cpu"), "cores", usable_cores(session)));
}

std::optional<CoreUse> core_use(const Session& session, const SampledRates& sampled,
                                const std::vector<Interval>& within) {
  const SampledRates::Sum own = sampled.sum("process cpu %", within);
  const double machine = machine_cores(session);
  CoreUse use;
  for (const int cpu : affinity_of(session))
    if (const auto of_one = sampled.mean(fmt::format("cpu {} %", cpu), within)) {
      use.busy += *of_one / 100;
      ++use.cores;
    }
  // Sessions without the CPUs' own shares have that of all; it is of the machine's cores.
  if (use.cores == 0) {
    const auto all = sampled.mean("cpu %", within);
    if (all && machine > 0) {
      use.cores = machine;
      use.busy = *all / 100 * machine;
    }
  }
  if (own.covered_ns <= 0 || use.cores == 0) return std::nullopt;
  // Of what was not sampled for a time there was none then.
  const auto cores_of = [&](const char* metric) {
    return sampled.sum(metric, within).value_ns / own.covered_ns / 100;
  };
  use.own = cores_of("process cpu %");
  use.siblings = cores_of("siblings cpu %");
  use.stolen = cores_of("stolen cpu %") * (machine > 0 ? std::min(1.0, use.cores / machine) : 1);
  return use;
}

void take_cores(const View& view, const SampledRates& sampled, const std::vector<Interval>& within,
                Contention& found) {
  const Json& stamp = view.session.stamp;
  found.cores = usable_cores(view.session);
  found.machine_cores = machine_cores(view.session);
  const CpuSet cpus = affinity_of(view.session);
  found.affinity_cores = cpus.empty() ? found.machine_cores : static_cast<int>(cpus.size());
  const double quota = fields::number(fields::child(stamp, "cgroup"), "cpu_quota_cores");
  if (quota > 0) found.quota_cores = quota;

  if (const auto use = core_use(view.session, sampled, widened(within))) {
    const auto share = [&](double cores) { return std::clamp(cores / use->cores, 0.0, 1.0); };
    found.others_share = share(use->others());
    found.siblings_share = share(use->siblings);
    found.stolen_share = share(use->stolen);
    found.idle_share = share(use->idle());
  }

  const auto periods = sampled.mean("cpu periods/s", within);
  if (!periods) return;
  found.periods_per_s = *periods;
  found.throttled_periods_per_s = sampled.mean("cpu throttled periods/s", within).value_or(0);
  found.throttled_ns = sampled.mean("cpu throttled %", within).value_or(0) * 1e7;
  found.throttled_share =
      *periods > 0 ? std::min(1.0, found.throttled_periods_per_s / *periods) : 0;
}

// By their names in the metrics.
void take_programs(const SampledRates& sampled, const std::vector<Interval>& within,
                   Contention& found) {
  constexpr std::string_view program_prefix = "program ", program_suffix = " cpu %",
                             tracer_prefix = "traced by ";
  const std::vector<Interval> around = widened(within);
  const double ns = sampled.covered_ns(around);
  if (ns <= 0) return;
  found.knows_programs = sampled.values().contains("other processes");
  for (const auto& [name, samples] : sampled.values()) {
    if (name.starts_with(tracer_prefix)) found.tracer = name.substr(tracer_prefix.size());
    if (!name.starts_with(program_prefix) || !name.ends_with(program_suffix)) continue;
    const double cores = sampled.sum(name, around).value_ns / ns / 100;
    if (cores <= 0) continue;
    found.programs.push_back(
        {name.substr(program_prefix.size(),
                     name.size() - program_prefix.size() - program_suffix.size()),
         cores});
  }
  std::ranges::stable_sort(found.programs, std::ranges::greater(), &ProgramUse::cores);
}

void take_threads(const View& view, const SampledRates& sampled,
                  const std::vector<Interval>& within, Contention& found) {
  const double ns = sampled.covered_ns(within);
  if (ns <= 0) return;
  for (const auto& [name, samples] : sampled.values()) {
    if (!name.ends_with(delay_suffix)) continue;
    ThreadTime time{.thread = name.substr(0, name.size() - delay_suffix.size())};
    // A thread that ended has no more samples, and waits no more.
    const auto per_second = [&](std::string_view suffix) {
      return sampled.sum(time.thread + std::string(suffix), within).value_ns / ns * 1e7;
    };
    if (const auto threads = sampled.mean(time.thread + " threads", within))
      time.threads = std::max(1.0, *threads);
    time.delay_ns = per_second(delay_suffix) / time.threads;
    time.on_cpu_ns = per_second(on_cpu_suffix) / time.threads;
    found.threads.push_back(time);
  }
  found.has_delays = !found.threads.empty();
  const std::string trainer = view.trainer ? view.session.threads[*view.trainer].name : "main";
  for (const ThreadTime& time : found.threads) {
    if (time.thread == trainer) found.trainer = time;
    if (time.thread == "kernels") found.kernels = time;
    if (is_worker(time.thread)) found.workers.push_back(time);
  }
  std::ranges::sort(found.workers, [](const ThreadTime& a, const ThreadTime& b) {
    return std::pair(a.thread.size(), a.thread) < std::pair(b.thread.size(), b.thread);
  });
}

void take_process(const SampledRates& sampled, const std::vector<Interval>& within,
                  Contention& found) {
  found.switches_per_s = sampled.mean("involuntary switches/s", within);
  found.major_faults_per_s = sampled.mean("major faults/s", within);
  found.swapped_pages_per_s = sampled.mean("swapped pages/s", within);
  found.refaults_per_s = sampled.mean("refaulted pages/s", within);
  found.limit_hits_per_s = sampled.mean("memory limit hits/s", within);
  // Where the group's own is known, more on the machine is other groups'.
  auto pressure = sampled.mean("group memory pressure %", within);
  found.is_machines_pressure = !pressure;
  if (!pressure) pressure = sampled.mean("memory pressure %", within);
  if (pressure) found.memory_pressure = std::clamp(*pressure / 100, 0.0, 1.0);
  found.available_bytes = sampled.mean("memory available bytes", within);
  found.memory_limit_bytes = sampled.most("memory limit bytes");
  found.memory_used_bytes = sampled.most("memory limit used bytes");
  found.team_cpus = static_cast<int>(std::lround(sampled.mean("kernels cpus", within).value_or(0)));
}

}  // namespace

bool is_worker(const std::string& thread) {
  return thread.starts_with("loader ");
}

double CoreUse::others() const {
  return std::max(0.0, busy - own - siblings - stolen);
}

double CoreUse::idle() const {
  return std::max(0.0, cores - busy);
}

std::optional<CoreUse> core_use(const Session& session, const std::vector<Interval>& within) {
  const SampledMetrics metrics(session);
  return core_use(session, SampledRates(metrics), within);
}

double Contention::taken_share() const {
  return std::min(1.0, others_share.value_or(0) + siblings_share + stolen_share);
}

double Contention::taken_cores(double cores) const {
  if (affinity_cores < 1) return cores * taken_share();
  return std::max(0.0, cores - affinity_cores * (1 - taken_share()));
}

bool Contention::is_much(double share) const {
  constexpr double least_share = 0.10, least_cores = 0.5;
  return share >= least_share || share * affinity_cores >= least_cores;
}

bool Contention::is_missed(double share) const {
  const double without_ranks = others_share.value_or(0) + stolen_share;
  return is_much(share) && (std::max(share, without_ranks) > idle_share || has_long_delays());
}

double Contention::longest_delay_ns() const {
  double most = kernels_delay_ns();
  for (const ThreadTime& worker : workers) most = std::max(most, worker.delay_ns);
  return most;
}

bool Contention::has_long_delays() const {
  constexpr double long_delay_ns = 5e7;
  return has_delays && longest_delay_ns() >= long_delay_ns;
}

double Contention::worker_delay_ns() const {
  double sum = 0;
  for (const ThreadTime& worker : workers) sum += worker.delay_ns;
  return workers.empty() ? 0 : sum / static_cast<double>(workers.size());
}

double Contention::kernels_delay_ns() const {
  constexpr double always = 1e9;
  return std::min(always, std::max(trainer ? trainer->delay_ns : 0,
                                   kernels ? kernels->threads * kernels->delay_ns : 0));
}

double Contention::most_removable_share() const {
  if (!trainer && !kernels) return 1;
  double threads = 0, on_cpu = 0, delays = 0;  // delays: of each thread as a part of its own work
  for (const std::optional<ThreadTime>* const time : {&trainer, &kernels}) {
    if (!*time) continue;
    threads += (*time)->threads;
    on_cpu += (*time)->threads * (*time)->on_cpu_ns * 1e-9;
    if ((*time)->delay_ns <= 0) continue;
    if ((*time)->on_cpu_ns <= 0) return 1;
    delays += (*time)->threads * (*time)->delay_ns / (*time)->on_cpu_ns;
  }
  // More threads than cores need turns. Fewer spin while they wait, which is no work.
  const bool takes_turns = affinity_cores > 0 && threads > affinity_cores;
  const double most = takes_turns ? std::max(0.0, 1 - on_cpu / affinity_cores) : 1;
  return std::min(most, delays / (1 + delays));
}

std::string scheduling_text(const Session& session) {
  const Json& scheduling = fields::child(session.stamp, "scheduling");
  const std::string policy = fields::text(scheduling, "policy");
  const std::int64_t nice = fields::whole(scheduling, "nice");
  std::string text = nice == 0 ? "" : fmt::format("nice {}", nice);
  if (!policy.empty()) text += fmt::format("{}policy {}", text.empty() ? "" : ", ", policy);
  return text;
}

bool has_low_priority(const Session& session) {
  const Json& scheduling = fields::child(session.stamp, "scheduling");
  const std::string policy = fields::text(scheduling, "policy");
  if (policy == "idle") return true;
  return (policy.empty() || policy == "batch") && fields::whole(scheduling, "nice") > 0;
}

std::optional<double> available_bytes(const Session& session) {
  for (auto sample = session.samples.rbegin(); sample != session.samples.rend(); ++sample)
    if (session.name(sample->name) == "memory available bytes") return sample->value;
  return std::nullopt;
}

namespace {

// Whether the process itself shows no shortage: no faults, no limit that was hit, much memory left.
bool has_plenty(const Contention& found) {
  constexpr double some_faults = 10, much_left = 1 << 30;  // per second; bytes
  return found.available_bytes && *found.available_bytes >= much_left &&
         found.limit_hits_per_s.value_or(0) <= 0 && found.major_faults_per_s &&
         *found.major_faults_per_s < some_faults;
}

}  // namespace

double pressure_on_run(const Contention& found) {
  return found.is_machines_pressure && has_plenty(found) ? 0 : found.memory_pressure.value_or(0);
}

bool is_short_of_memory(const Contention& found) {
  constexpr double least_pressure = 0.05, least_swapped = 10, least_faults = 50;  // per second
  // Cached files reach a limit as well, which is no shortage.
  constexpr double nearly_full = 0.9;
  const bool limited =
      found.limit_hits_per_s.value_or(0) > 0 && found.memory_limit_bytes &&
      found.memory_used_bytes.value_or(0) >= nearly_full * *found.memory_limit_bytes;
  return pressure_on_run(found) >= least_pressure ||
         (found.swapped_pages_per_s.value_or(0) >= least_swapped && !has_plenty(found)) ||
         (limited && found.major_faults_per_s.value_or(0) >= least_faults);
}

WorkerParts worker_parts(const std::string& thread, const std::vector<std::uint64_t>& stage_ns,
                         std::uint64_t idle_ns, const Contention& found) {
  WorkerParts parts{.stage_ns = {stage_ns.begin(), stage_ns.end()},
                    .idle_ns = static_cast<double>(idle_ns)};
  double stages = std::accumulate(parts.stage_ns.begin(), parts.stage_ns.end(), 0.0);
  parts.other_ns = std::max(0.0, found.window_ns - stages - parts.idle_ns);
  const auto time = std::ranges::find(found.workers, thread, &ThreadTime::thread);
  if (time == found.workers.end()) return parts;
  const double delay = std::min(time->delay_ns * 1e-9 * found.window_ns, parts.other_ns + stages);
  const double between = std::min(delay, parts.other_ns);
  parts.other_ns -= between;
  parts.core_wait_ns = delay;
  if (stages > 0)
    for (double& ns : parts.stage_ns) ns *= 1 - (delay - between) / stages;
  return parts;
}

namespace {

// Between the end of the recorded step before, with windows all the way between, and the begin of
// this one.
std::uint64_t gap_before(const View& view, std::size_t step) {
  const std::vector<Interval>& times = view.recorded.times();
  if (step == 0 || times[step].begin_ns <= times[step - 1].end_ns) return 0;
  const std::uint64_t from = times[step - 1].begin_ns, to = times[step].end_ns;
  const bool together = view.window_times.within(from, to) == to - from;
  return together ? times[step].begin_ns - times[step - 1].end_ns : 0;
}

struct CoreWaits {
  std::vector<std::uint64_t> in_steps;
  std::uint64_t between_ns = 0;
};

// The share of these times that the trainer's thread waited for a core, by the samples.
double sampled_core_wait(const View& view, const std::vector<Interval>& within) {
  if (!view.trainer) return 0;
  const SampledRates sampled(view.metrics);
  const std::string name = view.session.threads[*view.trainer].name + std::string(delay_suffix);
  return std::clamp(sampled.mean(name, within).value_or(0) / 100, 0.0, 1.0);
}

CoreWaits find_core_waits(const View& view) {
  const Session& session = view.session;
  CoreWaits found;
  std::vector<std::uint64_t>& waits = found.in_steps;
  std::vector<bool> is_read(view.recorded.size());
  double read = 0, read_ns = 0, waited_ns = 0;  // of steps with a reading
  for (const Span& span : session.spans) {
    if (session.kind(span) != Kind::counter || session.name(span.name) != "core wait ns") continue;
    const int step = view.recorded.at(span.begin_ns);
    if (step < 0) continue;
    waits.resize(view.recorded.size());
    const auto i = static_cast<std::size_t>(step);
    const Interval& time = view.recorded.times()[i];
    const std::uint64_t gap = gap_before(view, i), length = time.end_ns - time.begin_ns;
    std::uint64_t own = span.arg;
    if (gap > 0)
      own = static_cast<std::uint64_t>(static_cast<double>(own) * static_cast<double>(length) /
                                       static_cast<double>(length + gap));
    waits[i] = std::min(own, length);
    found.between_ns += std::min(span.arg - own, gap);
    if (is_read[i]) continue;
    is_read[i] = true;
    read += 1, read_ns += static_cast<double>(length), waited_ns += static_cast<double>(waits[i]);
  }
  if (read_ns <= 0) return found;
  // A window of the past has no readings: its steps count as the others, in proportion to their
  // time, unless these are few and may have been another time of the run.
  const bool are_most = 2 * read >= static_cast<double>(waits.size());
  std::vector<Interval> unread;
  for (std::size_t i = 0; i < waits.size(); ++i)
    if (!is_read[i]) unread.push_back(view.recorded.times()[i]);
  const double share = are_most ? waited_ns / read_ns : sampled_core_wait(view, unread);
  for (std::size_t i = 0; i < waits.size(); ++i)
    if (const Interval& time = view.recorded.times()[i]; !is_read[i])
      waits[i] =
          static_cast<std::uint64_t>(share * static_cast<double>(time.end_ns - time.begin_ns));
  if (are_most)
    found.between_ns = static_cast<std::uint64_t>(static_cast<double>(found.between_ns) *
                                                  static_cast<double>(waits.size()) / read);
  return found;
}

}  // namespace

std::vector<std::uint64_t> core_waits(const View& view) {
  return find_core_waits(view).in_steps;
}

Contention contention(const View& view) {
  Contention found;
  const SampledRates sampled(view.metrics);
  const std::vector<Interval> within = windows_of(view);
  found.window_ns = static_cast<double>(total_ns(within));
  found.seconds = sampled.covered_ns(within) * 1e-9;
  take_cores(view, sampled, within, found);
  take_programs(sampled, within, found);
  take_threads(view, sampled, within, found);
  take_process(sampled, within, found);
  const CoreWaits waits = find_core_waits(view);
  if (const auto steps = static_cast<double>(waits.in_steps.size()); steps > 0) {
    found.trainer_delay_per_step_ns =
        static_cast<double>(std::reduce(waits.in_steps.begin(), waits.in_steps.end())) / steps;
    found.between_delay_per_step_ns = static_cast<double>(waits.between_ns) / steps;
  }
  return found;
}

}  // namespace warpstep::profiler
