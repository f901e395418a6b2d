// Findings about the machine, the trainer's work outside of steps, and the loader: there the
// cheapest remedy that helps, by replay.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "profiler/analysis/device.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double full_cpu = 95;  // %, of all cores
// Where more threads compute than there are cores: what their waiting for one shows. The CPU's load
// does not, as cores idle while a step's threads wait for its last one; it decides only where the
// kernel does not say how long threads waited.
constexpr double crowded_delay_ns = 5e7;   // per second: 5 % of the time
constexpr double crowded_cpu = 80;         // %, of all cores
constexpr double least_slowed_gpu = 0.10;  // of the samples
constexpr double least_observers = 0.05;   // of a step
constexpr std::int64_t seldom_logged = 1000;

Memory device_memory(const Facts& facts) {
  const Session& session = facts.session;
  Memory memory;
  for (const Device* const device : run_devices(session)) {
    const MetricLevel used =
        metric_level(facts.view, fmt::format("gpu {} memory used bytes", device->id));
    const double planned = fields::number(fields::child(session.program, "memory"), "total_bytes");
    const auto total = static_cast<double>(device->total_memory);
    // NVML's is of the whole GPU, of which a MIG instance has a part.
    const double bytes = std::max(used.most <= total ? used.most : 0, planned);
    if (total > 0 && bytes / total > (memory.total > 0 ? memory.used / memory.total : 0))
      memory = {bytes, total, fmt::format("GPU {}", device->id)};
  }
  return memory;
}

// Of kernels whose `threads` equal shares are computed by fewer `cores` in rounds: the time in
// which the last round leaves cores idle.
double uneven_share(int threads, int cores) {
  const double each = static_cast<double>(threads) / cores;
  return 1 - each / std::ceil(each);
}

// What a step is longer than its kernels' CPU time on all of `cores`: these idle while threads that
// have a share left wait for one. Fewer threads save at least that, and what threads spin at
// barriers until the last has had a core, which counts as CPU time. Per step, in ns; at most what
// the trainer's thread waited.
double idle_beside_waiting(const Facts& facts, int cores) {
  const Contention& lost = facts.analysis.contention;
  const double waited = facts.part(Category::core_wait);
  double on_cpu_ns = lost.trainer ? lost.trainer->on_cpu_ns : 0;
  if (lost.kernels) on_cpu_ns += lost.kernels->on_cpu_ns * lost.kernels->threads;
  const double computed = on_cpu_ns * 1e-9 * facts.step_ns / cores;
  return std::clamp(facts.part(Category::kernel) + waited - computed, 0.0, waited);
}

}  // namespace

Memory host_memory(const Facts& facts) {
  const MetricLevel used = metric_level(facts.view, "process rss bytes");
  const MetricLevel left = metric_level(facts.view, "memory available bytes");
  if (used.count == 0 || left.count == 0) return {};
  return {used.most, used.most + left.mean, "the host"};
}

void find_oversubscribed(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const int all = usable_cores(facts.session);
  const MetricLevel cpu = metric_level(facts.view, "cpu %");
  const Contention& lost = facts.analysis.contention;
  if (!facts.on_host || all < 1 || (cpu.count == 0 && !lost.has_delays)) return;
  const int threads = kernel_threads(facts.view);
  if (threads + view.workers <= all) return;
  const double delay_ns = std::max(lost.trainer ? lost.trainer->delay_ns : 0,
                                   lost.kernels ? lost.kernels->delay_ns : 0);
  const bool crowded =
      threads > all && (lost.has_delays ? delay_ns >= crowded_delay_ns : cpu.mean >= crowded_cpu);
  if (!crowded && (cpu.mean < full_cpu || facts.analysis.stall.is_stalled)) return;
  Finding finding{.key = "oversubscribed",
                  .text = "There are more threads than cores.",
                  .evidence = with_delays(
                      fmt::format("{} of kernels and {} on {}, CPU at {}",
                                  counted(threads, "thread"), counted(view.workers, "worker"),
                                  counted(all, "core"), quantity(cpu.mean / 100, Unit::share)),
                      lost)};
  const int enough =
      view.step_ns > 0 ? std::max(1, static_cast<int>(std::ceil(view.work_ns / view.step_ns))) : 1;
  if (threads > all) {
    finding.flag = fmt::format("--threads {}", all);
    finding.advice = fmt::format("use {}: more threads than cores gain nothing", finding.flag);
    finding.gain_ns = facts.part(Category::kernel) * uneven_share(threads, all);
    if (lost.has_delays) {
      const double least_ns = std::max(finding.gain_ns, idle_beside_waiting(facts, all)),
                   most_ns = std::max(least_ns, facts.part(Category::core_wait));
      finding.gain_ns = (least_ns + most_ns) / 2;
      if (most_ns - least_ns >= least_range * facts.step_ns) {
        finding.gain_least_ns = least_ns;
        finding.gain_most_ns = most_ns;
      }
    }
  } else if (view.work_ns > 0 && enough < view.workers) {
    finding.flag = fmt::format("--workers {}", enough);
    finding.advice = fmt::format("use {}: this many workers keep up with the step", finding.flag);
    finding.gain_ns = std::max(0.0, LoaderModel(view, facts.view).gain({.workers = enough}).ns);
  } else if (view.workers > 0 && 4 * view.workers <= all) {
    // A step's threads wait for the slowest of them, which has half of its core while a worker is
    // busy there. Fewer threads have more to do each.
    finding.flag = fmt::format("--threads {}", all - view.workers);
    const double busy =
        view.step_ns > 0 ? std::min(1.0, view.work_ns / view.step_ns / view.workers) : 0;
    finding.gain_ns = std::max(
        0.0, facts.part(Category::kernel) * (1 - (1 - busy / 2) * all / (all - view.workers)));
    finding.advice =
        fmt::format("use {}: it leaves cores to the workers; kernels wait for their slowest thread",
                    finding.flag);
  } else {
    return;
  }
  findings.push_back(finding);
}

namespace {

// How many CPUs --pin-cpus lists, on which all threads of kernels must fit; 0: it lists none.
int pinned_cpus(const Facts& facts) {
  const std::string pinned = facts.option("pin_cpus", "none");
  if (pinned == "none" || pinned == "auto") return 0;
  try {
    return static_cast<int>(parse_cpus(pinned).size());
  } catch (const UsageError&) {
    return 0;
  }
}

}  // namespace

// Kernels that use fewer threads than there are idle cores. How much more threads gain depends on
// the kernels: nothing where memory limits them, and little where they share cores.
void find_idle_cores(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_idle = 0.5;
  const int all = usable_cores(facts.session);
  const int threads = kernel_threads(facts.view);
  const MetricLevel own = metric_level(facts.view, "process cpu %");
  if (!facts.on_host || facts.waits_for_data || threads < 1 || threads >= all) return;
  if (own.count == 0) return;
  const double taken = facts.analysis.contention.taken_cores(all),
               idle = all - taken - own.mean / 100;
  const int more = std::min(all, threads + static_cast<int>(std::floor(idle + 0.25)));
  const auto physical = static_cast<int>(std::clamp<std::int64_t>(
      fields::whole(fields::child(facts.session.stamp, "cpu"), "physical_cores"), 0, 4096));
  const int useful = physical > 0 ? std::min(more, physical) : more;
  if (idle < least_idle || useful <= threads) return;
  Finding finding{.key = "idle-cores",
                  .text = "Kernels could use cores that are idle.",
                  .evidence = fmt::format("{} of kernels; of {} {:.2f} are idle",
                                          counted(threads, "thread"), counted(all, "core"), idle),
                  .flag = fmt::format("--threads {}", more)};
  finding.advice = fmt::format("use {}", finding.flag);
  const std::string limit =
      fields::text(fields::child(facts.session.stamp, "openmp"), "OMP_THREAD_LIMIT");
  if (!limit.empty() && std::atoi(limit.c_str()) <= threads) {
    finding.flag.clear();
    finding.advice =
        fmt::format("unset OMP_THREAD_LIMIT, which is {}: --threads cannot exceed it", limit);
  } else if (const int pinned = pinned_cpus(facts); pinned > 0 && pinned < more) {
    finding.flag = fmt::format("--pin-cpus auto --threads {}", more);
    finding.advice = fmt::format("use {}: --pin-cpus {} has only {}", finding.flag,
                                 facts.option("pin_cpus"), counted(pinned, "CPU"));
  }
  finding.gain_most_ns = facts.part(Category::kernel) * (1 - static_cast<double>(threads) / useful);
  finding.gain_ns = finding.gain_most_ns / 2;
  findings.push_back(finding);
}

void find_full_memory(const Facts& facts, std::vector<Finding>& findings) {
  const Memory memory = facts.on_host ? host_memory(facts) : device_memory(facts);
  if (!memory.is_full()) return;
  findings.push_back(
      {.key = "memory-high",
       .text = fmt::format("The memory of {} is nearly full.", memory.what),
       .evidence = fmt::format("{} of {} ({})", quantity(memory.used, Unit::bytes),
                               quantity(memory.total, Unit::bytes),
                               quantity(memory.used / memory.total, Unit::share)),
       .advice = "use a smaller batch: it leaves memory for other programs and larger inputs",
       .flag = facts.smaller_batch()});
}

void find_throttling(const Facts& facts, std::vector<Finding>& findings) {
  for (const Throttle& gpu : throttled(facts.session)) {
    if (gpu.share < least_slowed_gpu) continue;
    Finding finding{
        .key = "clock-throttling",
        .text = fmt::format("GPU {} throttled its clocks.", gpu.gpu),
        .evidence =
            fmt::format("{} in {} of the samples", gpu.why, quantity(gpu.share, Unit::share)),
        .advice =
            "check cooling and the power limit; do not compare this run's figures with others"};
    if (gpu.why == power_cap) {
      finding.text =
          fmt::format("GPU {} lowered its clocks to stay within its power limit.", gpu.gpu);
      finding.advice =
          "this is normal where a GPU is busy; compare this run with others of the same limit "
          "(nvidia-smi -q -d POWER)";
    }
    const MetricLevel clock = metric_level(facts.view, fmt::format("gpu {} sm clock MHz", gpu.gpu));
    const Json* const stamped = stamped_gpu(facts.session, gpu.gpu);
    const double most = stamped == nullptr ? 0 : fields::number(*stamped, "max_sm_clock_mhz");
    if (clock.count > 0 && most > clock.mean) {
      finding.evidence += fmt::format(", {:.0f} of {:.0f} MHz", clock.mean, most);
      // A GPU at its power limit never has its highest clock, and memory does not follow it.
      finding.gain_most_ns =
          facts.unless_waiting(facts.part(Category::kernel) * (1 - clock.mean / most));
      finding.gain_ns = finding.gain_most_ns / 2;
    }
    findings.push_back(finding);
  }
}

namespace {

// The part of the observers' time that is at least half of it, by its span; empty: none is.
std::string_view most_of_observers(const Facts& facts, double all_ns) {
  for (const std::string_view part : {"metrics.jsonl", "tensorboard", "progress line"})
    if (facts.range_ns(part) >= all_ns / 2) return part;
  return "";
}

}  // namespace

void find_slow_observers(const Facts& facts, std::vector<Finding>& findings) {
  // Beside the work of a device they delay no step: what they may is the host's time without it.
  const double all_ns = facts.range_ns("observers"),
               ns = facts.on_host ? all_ns : std::min(all_ns, facts.part(Category::cpu));
  if (ns <= least_observers * facts.step_ns) return;
  Finding finding{.key = "slow-observers",
                  .text = "Per-step logging is a significant part of the step.",
                  .evidence = "\"observers\": " + facts.of_step(all_ns),
                  .advice = "do less work in the observers",
                  .gain_ns = facts.unless_waiting(0.9 * ns)};
  const std::string_view part = most_of_observers(facts, all_ns);
  if (!part.empty()) finding.evidence += fmt::format(", most of it {}", part);
  if (part == "progress line") {
    finding.text = "The terminal that shows the progress is slow.";
    finding.advice = "send standard error to a file (2> train.log), or read it faster";
    findings.push_back(finding);
    return;
  }
  const std::int64_t every = fields::whole(facts.options, "log_every", 10);
  if (every > 0 && every < seldom_logged) {
    finding.flag = fmt::format("--log-every {}", 10 * every);
    finding.advice = fmt::format("log less often: {}", finding.flag);
  }
  findings.push_back(finding);
}

// --stats-every: calls that measure each block of the model, and a line of figures for them.
void find_statistics(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least = 0.03;  // of a step
  const Work& work = facts.analysis.work;
  const std::int64_t every = fields::whole(facts.options, "stats_every");
  double ns = 0;
  for (const CallRow& call : work.calls)
    if (call.op == "activation_statistics" || call.op == "update_statistics")
      ns += static_cast<double>(call.total_ns) / std::max(1.0, static_cast<double>(work.steps));
  if (every < 1 || ns <= least * facts.step_ns) return;
  Finding finding{.key = "statistics",
                  .text = "Measuring the model's blocks is a significant part of the step.",
                  .evidence = "calls that measure: " + facts.of_step(ns),
                  .flag = fmt::format("--stats-every {}", 10 * every),
                  .gain_ns = facts.unless_waiting(0.9 * ns)};
  finding.advice = fmt::format("measure less often: {}", finding.flag);
  findings.push_back(finding);
}

namespace {

// As "AVX2 by WARPSTEP_CPU_ISA, of AVX-512 with AMX" in the stamp.
constexpr std::string_view by_limit = " by WARPSTEP_CPU_ISA, of ";

std::string instruction_set(const Facts& facts) {
  return fields::text(fields::child(facts.session.stamp, "cpu"), "instruction_set");
}

void find_limited_instructions(const Facts& facts, std::vector<Finding>& findings) {
  const std::string set = instruction_set(facts);
  const std::size_t at = set.find(by_limit);
  if (at == set.npos) return;
  findings.push_back({.key = "slow-option",
                      .text = "Loops use fewer instructions than this CPU has.",
                      .evidence = fmt::format("WARPSTEP_CPU_ISA limits them to {}; the CPU has {}",
                                              set.substr(0, at), set.substr(at + by_limit.size())),
                      .advice = "unset WARPSTEP_CPU_ISA unless you test what another CPU runs"});
}

// How long calls would take with them is not recorded. On a GPU small-kernels says so where it
// shows.
void find_disabled_fusions(const Facts& facts, std::vector<Finding>& findings) {
  const Json& names = fields::child(facts.options, "no_fuse");
  if (!facts.on_host || !names.is_array() || names.empty()) return;
  std::string flags;
  for (const Json& name : names)
    if (name.is_string()) flags += fmt::format(" --no-fuse {}", name.get<std::string>());
  findings.push_back({.key = "slow-option",
                      .text = "Fusions are disabled.",
                      .evidence = flags.substr(std::min<std::size_t>(1, flags.size())),
                      .advice = "leave out --no-fuse unless you compare with and without: "
                                "`warpstep explain` shows how many calls and bytes each fusion "
                                "saves in this step"});
}

void find_needless_recompute(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_flops =
      0.5;  // of their share: what is recomputed may be waiting for bytes
  const Json& without = fields::child(facts.session.loader, "without_recompute");
  const double more = fields::number(without, "arena_bytes") -
                      fields::number(fields::child(facts.session.program, "memory"), "arena_bytes");
  const Memory memory = facts.on_host ? host_memory(facts) : device_memory(facts);
  if (fields::number(without, "arena_bytes") <= 0 || memory.total <= 0) return;
  if (memory.used + std::max(0.0, more) > full_memory * memory.total) return;
  Finding finding{.key = "needless-recompute",
                  .text = "Values are computed again though memory has room for them.",
                  .evidence = fmt::format("--recompute saves {}; {} has {} free",
                                          quantity(std::max(0.0, more), Unit::bytes), memory.what,
                                          quantity(memory.total - memory.used, Unit::bytes)),
                  .advice = "leave out --recompute"};
  finding.gain_most_ns =
      facts.unless_waiting(facts.part(Category::kernel) * fields::number(without, "flops_saved"));
  finding.gain_least_ns = least_flops * finding.gain_most_ns;
  finding.gain_ns = (finding.gain_least_ns + finding.gain_most_ns) / 2;
  findings.push_back(finding);
}

// Products in bf16 take half the bytes, and on such a CPU half the instructions or fewer. How much
// of a call that saves depends on its shape.
void find_wide_arithmetic(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_bound = 0.3;  // of a step
  constexpr double least_saved = 0.1, most_saved = 0.5, most_saved_by_amx = 0.7;
  const std::string all = instruction_set(facts), set = all.substr(0, all.find(by_limit));
  const bool has_amx = set.find("AMX") != set.npos;
  if (!has_amx && set.find("AVX512_BF16") == set.npos) return;
  if (!facts.on_host || facts.option("precision") != "fp32" || facts.option("device") == "ref")
    return;
  double ns = 0;
  for (const CallRow& call : facts.analysis.work.calls)
    if (call.bound == "compute" && (call.op.starts_with("conv") || call.op.starts_with("linear") ||
                                    call.op.starts_with("attention")))
      ns += call.share * facts.step_ns;
  if (ns < least_bound * facts.step_ns) return;
  Finding finding{
      .key = "half-precision",
      .text = "The step computes in 32 bits.",
      .evidence = fmt::format("convolutions and products that the arithmetic limits: {}; this CPU "
                              "has {}",
                              facts.of_step(ns), has_amx ? "AMX" : "AVX512_BF16"),
      .advice =
          "try --precision bf16: weights stay in 32 bits, but results change, so compare loss "
          "and accuracy",
      .flag = "--precision bf16",
      .changes_results = true};
  finding.gain_least_ns = facts.unless_waiting(least_saved * ns);
  finding.gain_most_ns = facts.unless_waiting((has_amx ? most_saved_by_amx : most_saved) * ns);
  finding.gain_ns = (finding.gain_least_ns + finding.gain_most_ns) / 2;
  findings.push_back(finding);
}

// How much is lost is what steps wait; which of it the spinning takes is not known.
void find_spinning_threads(const Facts& facts, std::vector<Finding>& findings) {
  if (!spins_on_needed_cores(facts)) return;
  const double waits = facts.part(Category::data) + facts.part(Category::core_wait);
  findings.push_back(
      {.key = "slow-option",
       .text = "The kernels' threads keep their cores while they wait for each other.",
       .evidence =
           fmt::format("OMP_WAIT_POLICY=active, {} for {} of kernels and {}; waits for data "
                       "and for cores are {}",
                       counted(usable_cores(facts.session), "core"),
                       counted(kernel_threads(facts.view), "thread"),
                       counted(facts.analysis.loader.workers, "worker"), facts.of_step(waits)),
       .advice = "unset OMP_WAIT_POLICY: a thread that waits then soon gives its core to a worker",
       .gain_ns = waits / 2,
       .gain_most_ns = waits});
}

}  // namespace

bool spins_on_needed_cores(const Facts& facts) {
  constexpr double least_waits = 0.05;  // of a step
  const Json& openmp = fields::child(facts.session.stamp, "openmp");
  std::string policy = fields::text(openmp, "OMP_WAIT_POLICY");
  for (char& c : policy) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!facts.on_host || policy != "active") return false;
  if (kernel_threads(facts.view) + facts.analysis.loader.workers <= usable_cores(facts.session))
    return false;
  const double waits = facts.part(Category::data) + facts.part(Category::core_wait);
  return waits >= least_waits * facts.step_ns;
}

// Options that cost time for something else; how much is mostly not recorded.
void find_slow_options(const Facts& facts, std::vector<Finding>& findings) {
  find_limited_instructions(facts, findings);
  find_wide_arithmetic(facts, findings);
  find_spinning_threads(facts, findings);
  find_disabled_fusions(facts, findings);
  find_needless_recompute(facts, findings);
  if (facts.option("device") == "ref")
    findings.push_back({.key = "slow-option",
                        .text = "The reference backend is there to check others, and slow.",
                        .evidence = "--device ref",
                        .advice = "compute on another device: --device cpu",
                        .flag = "--device cpu"});
  if (fields::flag(facts.options, "check_numerics", false)) {
    Finding finding{.key = "check-numerics",
                    .text = "Every call's results are checked for values that are not finite.",
                    .evidence = fmt::format("--check-numerics: {} in calls, each followed by a "
                                            "pass over what it wrote",
                                            facts.of_step(facts.part(Category::kernel))),
                    .advice =
                        "leave out --check-numerics unless you look for such a value; other "
                        "figures of this run hold for checked steps only"};
    // How much of this is checks was not recorded: a pass over results is as long as a call at
    // most.
    finding.gain_most_ns = facts.unless_waiting(facts.part(Category::kernel));
    finding.gain_ns = finding.gain_most_ns / 2;
    findings.push_back(finding);
  }
  const bool has_convolutions = std::ranges::any_of(
      facts.analysis.work.calls, [](const CallRow& call) { return call.op.starts_with("conv"); });
  if (fields::flag(facts.options, "exact_math", false) && has_convolutions && facts.on_host)
    findings.push_back({.key = "slow-option",
                        .text = "Convolutions are computed without Winograd's algorithm.",
                        .evidence = "--exact-math",
                        .advice = "leave out --exact-math unless training must round as plain "
                                  "sums do"});
}

// A span reads the clock twice. Where programs cannot read the kernel's clock source themselves,
// each reading is a system call, and everything that measures time is slow.
void find_slow_clock(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_span_ns = 2000, much_recording = 0.05;  // of a step
  const Json& costs = fields::child(facts.session.stamp, "profiler");
  const double span_ns = fields::number(costs, "span_ns");
  if (span_ns < least_span_ns) return;
  findings.push_back(
      {.key = "slow-clock",
       .text = "Reading the clock is slow on this machine.",
       .evidence = fmt::format("recording a span takes {}, with a fast clock less than 200 ns",
                               quantity(span_ns, Unit::ns)),
       .advice =
           "let the kernel use the clock source tsc, not hpet or acpi_pm "
           "(/sys/devices/system/clocksource/clocksource0); --profile steps reads the clock less",
       .spoils_figures = facts.analysis.trust.overhead_share >= much_recording});
}

}  // namespace warpstep::profiler
