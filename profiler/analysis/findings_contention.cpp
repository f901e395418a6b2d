// Findings about cores that the process was not given: other programs, a quota or an affinity mask
// withheld them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loading.h"

namespace warpstep::profiler {
namespace {

// Others alone, where the kernel does not say for how long threads waited, or a quota is why.
constexpr double taken_alone = 0.25;
constexpr double often_throttled = 0.05;  // of the periods

// "waiting for a core: the trainer's thread 35.0 % of the time, the kernels' other threads ...".
std::string delays_text(const Contention& lost) {
  std::string text;
  const auto add = [&](const char* what, double ns) {
    text += fmt::format("{}{} {} of the time", text.empty() ? "waiting for a core: " : ", ", what,
                        quantity(std::min(1.0, ns * 1e-9), Unit::share));
  };
  if (lost.trainer) add("the trainer's thread", lost.trainer->delay_ns);
  if (lost.kernels) {
    const bool several = lost.kernels->threads > 1;
    add(several ? "each of the kernels' other threads" : "the kernels' other thread",
        lost.kernels->delay_ns);
  }
  if (!lost.workers.empty()) add("the loader's workers", lost.worker_delay_ns());
  if (lost.switches_per_s)
    text += fmt::format("{}{:.0f} involuntary switches per second", text.empty() ? "" : "; ",
                        *lost.switches_per_s);
  return text;
}

// How much of the trainer's waiting for a core was the quota's, of 1: while it is throttled nobody
// else's programs matter.
double share_of_quota(const Contention& lost) {
  const double delay = lost.trainer ? lost.trainer->delay_ns : 0;
  if (lost.throttled_share.value_or(0) < often_throttled) return 0;
  return delay > 0 ? std::min(1.0, lost.throttled_ns / delay) : 1;
}

// What waiting for a core cost, per step: as the trainer's thread counted it, in and between steps;
// else, without its counts, by what was sampled.
struct CoreWait {
  double ns = 0, least_ns = 0, most_ns = 0;  // a range where the two last are not 0
  double between_ns = 0;                     // no part of a step: none can save it
};

CoreWait core_wait_of(const Facts& facts) {
  const Contention& lost = facts.analysis.contention;
  const double counted = facts.part(Category::core_wait), between = lost.between_delay_per_step_ns;
  if (counted + between > 0 || lost.trainer_delay_per_step_ns) {
    CoreWait wait{.ns = counted, .between_ns = between};
    // At a barrier the trainer's thread sleeps while another one waits for a core.
    const double most =
        std::min(lost.kernels_delay_ns() * 1e-9, lost.most_removable_share()) * facts.step_ns;
    if (facts.on_host && most - counted >= least_range * facts.step_ns) {
      wait.least_ns = counted;
      wait.most_ns = most;
      wait.ns = (counted + most) / 2;
    }
    return wait;
  }
  // A device computes on while the host waits.
  const double awake =
      facts.on_host ? lost.most_removable_share() * facts.step_ns
                    : facts.step_ns - facts.part(Category::kernel) - facts.part(Category::copy);
  CoreWait wait;
  if (lost.has_delays && lost.trainer) {
    // Samples are also of evaluations and checkpoints between the steps.
    const double around = std::max(1.0, lost.window_ns / facts.steps / facts.step_ns),
                 sampled = lost.trainer->delay_ns * 1e-9 * around * facts.step_ns;
    wait.most_ns = std::min(awake, lost.kernels_delay_ns() * 1e-9 * around * facts.step_ns);
    wait.least_ns = std::clamp(sampled - (around - 1) * facts.step_ns, 0.0, wait.most_ns);
  } else {
    wait.most_ns = std::min(awake, lost.others_share.value_or(0) * facts.step_ns);
  }
  wait.ns = (wait.least_ns + wait.most_ns) / 2;
  return wait;
}

void promise(const CoreWait& wait, double share, const Facts& facts, Finding& finding) {
  finding.run_gain_ns = wait.between_ns * share * facts.run_steps();
  finding.gain_ns = facts.unless_waiting(wait.ns * share);
  const double least_ns = facts.unless_waiting(wait.least_ns * share),
               most_ns = facts.unless_waiting(wait.most_ns * share);
  if (most_ns - least_ns < least_range * facts.step_ns) return;
  finding.gain_least_ns = least_ns;
  finding.gain_most_ns = most_ns;
}

std::string with_between(std::string evidence, const Facts& facts) {
  constexpr double least = 0.01;  // of a step
  const double ns = facts.analysis.contention.between_delay_per_step_ns;
  if (ns < least * facts.step_ns) return evidence;
  return fmt::format("{}; {} per step of it in evaluations and checkpoints between steps", evidence,
                     quantity(ns, Unit::ns));
}

// "; most of it: python3 0.95 cores, cc1plus 0.40 cores"
std::string programs_text(const Contention& lost) {
  constexpr std::size_t most = 2;
  constexpr double least_known = 0.2;  // of what others took
  if (!lost.knows_programs) return "";
  const double others = lost.others_share.value_or(0) * lost.affinity_cores;
  std::string text;
  double known = 0;
  for (std::size_t i = 0; i < std::min(most, lost.programs.size()); ++i) {
    const ProgramUse& one = lost.programs[i];
    known += one.cores;
    text += fmt::format("{}{} {:.2f} cores", i == 0 ? "; most of it: " : ", ", one.name, one.cores);
  }
  return known >= least_known * others ? text
                                       : "; most of it by programs that ran for a short time each, "
                                         "or outside of this container";
}

// 0: as usual, or more.
double group_weight(const Session& session) {
  return fields::number(fields::child(session.stamp, "cgroup"), "cpu_weight");
}

// The first of those that took most, by its name; "": none of them.
std::string real_time_program(const Contention& lost) {
  const auto found = std::ranges::find_if(lost.programs, [](const ProgramUse& program) {
    return program.name.ends_with(real_time_suffix);
  });
  return found == lost.programs.end() ? "" : found->name;
}

// "--threads 3", as many as cores are free, where there are more now; else "". A core that is free
// for more than a quarter of the time is worth a thread. It is no finding's flag: gains are of
// cores that are free again.
std::string fewer_threads(const Facts& facts, double free_cores) {
  const int now = kernel_threads(facts.view), fits = static_cast<int>(std::ceil(free_cores - 0.25));
  return fits >= 1 && fits < now ? fmt::format("--threads {}", fits) : "";
}

// Used by threads of this process that the program did not start, in cores: those of a plugin, of a
// library.
double foreign_cores(const Contention& lost) {
  const auto others = std::ranges::find(lost.threads, "other threads", &ThreadTime::thread);
  return others == lost.threads.end() ? 0 : others->threads * others->on_cpu_ns * 1e-9;
}

bool has_foreign_threads(const Contention& lost) {
  return lost.affinity_cores > 0 && lost.has_long_delays() &&
         lost.is_much(foreign_cores(lost) / lost.affinity_cores);
}

// Of the trainer's waiting for a core, what is other programs' where both took cores; of 1.
double share_of_programs(const Contention& lost) {
  if (!has_foreign_threads(lost)) return 1;
  const double programs = lost.others_share.value_or(0) * lost.affinity_cores;
  return programs / (programs + foreign_cores(lost));
}

}  // namespace

std::string with_delays(std::string evidence, const Contention& lost) {
  const std::string delays = delays_text(lost);
  if (!delays.empty()) evidence += "; " + delays;
  return evidence;
}

void find_other_programs(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  const double others = lost.others_share.value_or(0);
  const bool is_throttled = lost.throttled_share.value_or(0) >= often_throttled;
  const bool is_delayed = lost.has_long_delays();
  if (is_delayed && !is_throttled ? !lost.is_much(others) : others < taken_alone) return;
  if (lost.has_delays && !is_delayed) return;  // they ran where this run did not want to
  Finding finding{
      .key = "other-programs",
      .text = "Other programs take the cores that this run needs.",
      .evidence = with_between(
          with_delays(fmt::format("{} of {} taken by others{}", quantity(others, Unit::share),
                                  counted(lost.affinity_cores, "core"), programs_text(lost)),
                      lost),
          facts),
      .advice =
          "stop them, or run where cores are free; figures of this run are not those of a "
          "quiet machine"};
  if (has_low_priority(facts.session)) {
    finding.text = "Other programs take the cores that this run needs, and come before it.";
    finding.evidence = scheduling_text(facts.session) + "; " + finding.evidence;
    finding.advice =
        "start it at the usual priority: without nice or chrt, and in a job manager or service "
        "without Nice= or CPUSchedulingPolicy=; it then has its share of the cores, and all of "
        "them where the others end: " +
        finding.advice;
  }
  if (const double weight = group_weight(facts.session); weight > 0) {
    finding.evidence +=
        fmt::format("; the control group's cpu.weight is {:.3g} of the usual 100", weight);
    finding.advice =
        "raise the weight of the run's control group (docker --cpu-shares, Kubernetes "
        "requests.cpu, systemd's CPUWeight=, cpu.weight or cpu.shares), with which other groups' "
        "programs come before it; else " +
        finding.advice;
  }
  if (const std::string program = real_time_program(lost); !program.empty())
    finding.advice += fmt::format(
        "; {} comes before all usual programs, whatever their nice value: `chrt -o -p 0 PID` ends "
        "that",
        program);
  promise(core_wait_of(facts), (1 - share_of_quota(lost)) * share_of_programs(lost), facts,
          finding);
  if (const std::string fewer =
          fewer_threads(facts, lost.affinity_cores * (1 - lost.taken_share()));
      !fewer.empty())
    finding.advice +=
        fmt::format("; while they run use {}: kernels wait for their slowest thread", fewer);
  findings.push_back(finding);
}

// Threads of this process that are none of the run's: other programs' time has nothing of them.
void find_foreign_threads(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  if (!has_foreign_threads(lost)) return;
  const double cores = foreign_cores(lost);
  Finding finding{
      .key = "foreign-threads",
      .text = "Other threads of this process take the cores that this run needs.",
      .evidence = with_between(
          with_delays(fmt::format("{:.2f} of {} by threads that are neither the kernels' nor the "
                                  "loader's",
                                  cores, counted(lost.affinity_cores, "core")),
                      lost),
          facts),
      .advice =
          "find what started them (`top -H -p PID` shows each with its name): a plugin, or a "
          "library that the program uses or that was loaded into it (LD_PRELOAD); end them, or "
          "give them less to do"};
  const double programs = lost.others_share ? share_of_programs(lost) : 0;
  promise(core_wait_of(facts), (1 - share_of_quota(lost)) * (1 - programs), facts, finding);
  if (const std::string fewer =
          fewer_threads(facts, lost.affinity_cores * (1 - lost.taken_share()) - cores);
      !fewer.empty())
    finding.advice += fmt::format("; while they run use {}", fewer);
  findings.push_back(finding);
}

// What the hypervisor takes from a thread that runs is none of its run delay.
void find_stolen_cores(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  if (!lost.is_much(lost.stolen_share)) return;
  Finding finding{
      .key = "stolen-cores",
      .text = "The hypervisor gives cores of this machine to other virtual machines.",
      .evidence =
          with_delays(fmt::format("{:.2f} of {} (steal)", lost.stolen_share * lost.affinity_cores,
                                  counted(lost.affinity_cores, "core")),
                      lost),
      .advice =
          "ask for dedicated CPUs or another host; figures of this run are not those of a "
          "quiet machine"};
  const double computed = facts.on_host ? facts.part(Category::kernel)
                                        : facts.part(Category::runtime) + facts.part(Category::cpu);
  finding.gain_most_ns = facts.unless_waiting(lost.stolen_share * computed);
  finding.gain_ns = finding.gain_most_ns / 2;
  findings.push_back(finding);
}

void find_cpu_quota(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  if (lost.throttled_share.value_or(0) < often_throttled) return;
  const double throttled = lost.throttled_periods_per_s * lost.seconds;
  Finding finding{
      .key = "cpu-quota",
      .text = "The control group's CPU quota stops the run.",
      .evidence = with_between(
          with_delays(
              fmt::format("throttled in {:.0f} of {} ({}){}", throttled,
                          counted(std::round(lost.periods_per_s * lost.seconds), "period"),
                          quantity(*lost.throttled_share, Unit::share),
                          lost.quota_cores ? fmt::format(", the quota is {:.2f} cores of {}",
                                                         *lost.quota_cores, lost.affinity_cores)
                                           : ""),
              lost),
          facts),
      .advice = "raise the quota (docker --cpus, Kubernetes limits.cpu, cpu.max)"};
  promise(core_wait_of(facts), share_of_quota(lost), facts, finding);
  // A thread more than the quota has cores spends it faster, and then all stop.
  if (const std::string fewer = fewer_threads(facts, std::ceil(lost.quota_cores.value_or(0)));
      !fewer.empty())
    finding.advice += fmt::format("; within the quota use {}", fewer);
  findings.push_back(finding);
}

// Time in which the process neither computed nor waited for anything that is known: not for a core,
// for data, for other ranks, for a terminal or for a disk between steps.
void find_stopped(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_stopped = 0.15;  // of a step
  constexpr double least_seconds = 1;     // of samples
  const Contention& lost = facts.analysis.contention;
  if (!facts.on_host || !lost.has_delays || !lost.trainer || lost.seconds < least_seconds) return;
  if (is_short_of_memory(lost)) return;  // its pages are read from a disk
  // The team computes at the same time as the trainer's thread: its time on cores explains only
  // what is longer, for which the trainer waits at a barrier, as it does for each thread without a
  // core. All that is longer may be one slow thread's. What the hypervisor took is in neither.
  double explained = lost.trainer->on_cpu_ns + lost.trainer->delay_ns + lost.stolen_share * 1e9;
  if (lost.kernels)
    explained +=
        lost.kernels->threads *
        (lost.kernels->delay_ns + std::max(0.0, lost.kernels->on_cpu_ns - lost.trainer->on_cpu_ns));
  const double steps_ns = facts.steps * facts.step_ns, all = std::max(lost.window_ns, steps_ns),
               between = all - steps_ns;  // it may have waited for a disk in all of that
  // Observers may wait for a terminal.
  const double asleep =
      (facts.part(Category::data) + facts.part(Category::sync) + facts.part(Category::copy) +
       facts.part(Category::communication) + facts.range_ns("observers")) *
      facts.steps;
  const double stopped = (all - explained * 1e-9 * all - between - asleep) / facts.steps;
  if (stopped < least_stopped * facts.step_ns) return;
  Finding finding{
      .key = "stopped",
      .text = "The process stood still for a part of each step.",
      .evidence = fmt::format(
          "{}: then it neither ran on a core nor waited for one, for data or for a device",
          facts.of_step(stopped)),
      .advice =
          "find what stops it: another process that sends SIGSTOP and SIGCONT (a job manager, a "
          "limit on CPU use, a debugger), a frozen control group, a virtual machine that is "
          "suspended",
      .gain_ns = stopped};
  const Json& openmp = fields::child(facts.session.stamp, "openmp");
  if (openmp.contains("OMP_WAIT_POLICY") || openmp.contains("GOMP_SPINCOUNT")) {
    finding.text = "The kernels' threads slept for a part of each step.";
    finding.advice =
        "unset OMP_WAIT_POLICY and GOMP_SPINCOUNT: a thread that sleeps at the end of each loop "
        "wakes up late; if that is not it, " +
        finding.advice;
  }
  findings.push_back(finding);
}

void find_tracer(const Facts& facts, std::vector<Finding>& findings) {
  const std::string& tracer = facts.analysis.contention.tracer;
  if (tracer.empty()) return;
  findings.push_back(
      {.key = "traced",
       .text = fmt::format("{} traces this process.", tracer),
       .evidence = "the kernel stops a traced thread at system calls, signals or breakpoints, as "
                   "the tracer asked for",
       .advice = "measure without it: figures of this run are not those of an untraced one",
       .spoils_figures = true});
}

void find_narrow_affinity(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  const int kernels = kernel_threads(facts.view), workers = facts.analysis.loader.workers;
  if (lost.affinity_cores < 1 || lost.affinity_cores >= lost.machine_cores) return;
  if (kernels + workers <= lost.affinity_cores) return;
  if (lost.has_delays && !lost.has_long_delays()) return;
  Finding finding{
      .key = "narrow-affinity",
      .text = "The run is allowed fewer CPUs than it has threads.",
      .evidence = with_delays(fmt::format("{} of the machine's {} ({}) for {} of kernels and {}",
                                          counted(lost.affinity_cores, "CPU"), lost.machine_cores,
                                          fields::text(facts.session.stamp, "affinity"),
                                          counted(kernels, "thread"), counted(workers, "worker")),
                              lost),
      .advice =
          "allow more CPUs (taskset, numactl, docker --cpuset-cpus, mpirun --bind-to none, Slurm's "
          "--cpus-per-task)"};
  if (kernels > lost.affinity_cores) {
    finding.flag = fmt::format("--threads {}", lost.affinity_cores);
    finding.advice += fmt::format("; on these CPUs use {}", finding.flag);
  } else if (workers > 1 && workers > lost.affinity_cores) {
    finding.flag = fmt::format("--workers {}", lost.affinity_cores);
    finding.advice += fmt::format("; on these CPUs use {}", finding.flag);
  }
  findings.push_back(finding);
}

// Threads that must share a CPU though the process may use more.
void find_bound_threads(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_ideal = 1.0 / 3;
  const Contention& lost = facts.analysis.contention;
  const int threads = kernel_threads(facts.view), could = std::min(threads, lost.affinity_cores);
  if (!facts.on_host || lost.team_cpus < 1 || lost.team_cpus >= could) return;
  Finding finding{
      .key = "bound-threads",
      .text = "The kernels' threads are bound to fewer CPUs than the process may use.",
      .evidence =
          with_delays(fmt::format("{} on {}; the process may use {}", counted(threads, "thread"),
                                  counted(lost.team_cpus, "CPU"), lost.affinity_cores),
                      lost),
      .advice =
          "unset OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY, or give each thread a CPU "
          "of its own; --pin-cpus auto does that"};
  const Json& openmp = fields::child(facts.session.stamp, "openmp");
  if (!openmp.contains("OMP_PROC_BIND") && !openmp.contains("OMP_PLACES") &&
      !openmp.contains("GOMP_CPU_AFFINITY")) {
    finding.text = "The kernels' threads may use fewer CPUs than the process could at its start.";
    finding.advice =
        "find what moved them: the cpuset of the control group, taskset on running threads, a job "
        "manager; give them their CPUs back; --pin-cpus auto keeps threads apart where the process "
        "may still use these";
  }
  finding.gain_most_ns =
      facts.unless_waiting((facts.part(Category::kernel) + facts.part(Category::core_wait)) *
                           (1 - static_cast<double>(lost.team_cpus) / could));
  finding.gain_least_ns = least_ideal * finding.gain_most_ns;
  finding.gain_ns = (finding.gain_least_ns + finding.gain_most_ns) / 2;
  findings.push_back(finding);
}

}  // namespace warpstep::profiler
