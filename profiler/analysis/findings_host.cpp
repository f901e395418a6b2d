// The machine, and what the trainer's own thread does besides steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/analysis/counted.h"
#include "profiler/analysis/findings_rules.h"
#include "profiler/analysis/stall_text.h"
#include "profiler/analysis/throttle.h"

namespace warpstep::profiler::advice {
namespace {

constexpr double full_cpu = 95;       // %, of all cores
constexpr double crowded_cpu = 80;    // likewise, where more threads compute than there are cores
constexpr double full_memory = 0.90;  // of it: torch_tb_profiler's
constexpr double least_throttled = 0.10;    // of the samples
constexpr double least_observers = 0.05;    // of a step
constexpr double least_checkpoints = 0.05;  // of a step, by the mean over the windows
constexpr double least_evaluation = 0.25;   // of the windows' time
constexpr std::int64_t seldom_logged = 1000;

struct Memory {
  double used = 0, total = 0;  // bytes
  std::string what;
};

Memory device_memory(const Facts& facts) {
  const Session& session = facts.session;
  Memory memory;
  for (const Device& device : session.devices) {
    const Level used = level(session, fmt::format("gpu {} memory used bytes", device.id));
    const double planned = fields::number(fields::child(session.program, "memory"), "total_bytes");
    const double bytes = std::max(used.most, planned);
    const auto total = static_cast<double>(device.total_memory);
    if (total > 0 && bytes / total > (memory.total > 0 ? memory.used / memory.total : 0))
      memory = {bytes, total, fmt::format("GPU {}", device.id)};
  }
  return memory;
}

Memory host_memory(const Facts& facts) {
  const Level used = level(facts.session, "process rss bytes");
  const Level left = level(facts.session, "memory available bytes");
  if (used.count == 0 || left.count == 0) return {};
  return {used.most, used.most + left.mean, "the host"};
}

}  // namespace

void find_oversubscribed(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const int all = cores(facts.session);
  const Level cpu = level(facts.session, "cpu %");
  if (!facts.on_host || all < 1 || cpu.count == 0) return;
  const auto told = static_cast<int>(
      std::clamp<std::int64_t>(fields::whole(facts.session.loader, "kernel_threads",
                                             fields::whole(facts.options, "threads")),
                               0, 4096));
  const int threads = told > 0 ? told : all;
  if (threads + view.workers <= all) return;
  const bool crowded = threads > all && cpu.mean >= crowded_cpu;
  if (!crowded && (cpu.mean < full_cpu || facts.analysis.stall.is_stalled)) return;
  Finding finding{.key = "oversubscribed",
                  .text = "More threads want to run than there are cores.",
                  .evidence = fmt::format(
                      "{} of kernels and {} on {}, CPU at {:.0f}%", count_text(threads, "thread"),
                      count_text(view.workers, "worker"), count_text(all, "core"), cpu.mean)};
  const int enough =
      view.step_ns > 0 ? std::max(1, static_cast<int>(std::ceil(view.work_ns / view.step_ns))) : 1;
  if (threads > all) {
    finding.flag = fmt::format("--threads {}", all);
    finding.advice = "one thread a core is as fast as it gets";
  } else if (view.work_ns > 0 && enough < view.workers) {
    finding.flag = fmt::format("--workers {}", enough);
    finding.advice = "so many workers make batches as fast as the step takes them";
  } else if (view.workers > 0 && 4 * view.workers <= all) {
    // A step's threads wait for the slowest of them, which shares its core with a worker.
    finding.flag = fmt::format("--threads {}", all - view.workers);
    finding.advice = "leave cores to the workers: kernels wait for the slowest of their threads";
  } else {
    return;
  }
  findings.push_back(finding);
}

void find_full_memory(const Facts& facts, std::vector<Finding>& findings) {
  const Memory memory = facts.on_host ? host_memory(facts) : device_memory(facts);
  if (memory.total <= 0 || memory.used <= full_memory * memory.total) return;
  findings.push_back(
      {.key = "memory-high",
       .text = fmt::format("The memory of {} is nearly full.", memory.what),
       .evidence = fmt::format("{:.1f} of {:.1f} GiB ({})", memory.used / (1 << 30),
                               memory.total / (1 << 30), share_text(memory.used / memory.total)),
       .advice = "a smaller batch leaves room for what else runs, and for larger inputs",
       .flag = facts.smaller_batch()});
}

void find_throttling(const Facts& facts, std::vector<Finding>& findings) {
  for (const Throttle& gpu : throttled(facts.session)) {
    if (gpu.share < least_throttled) continue;
    Finding finding{
        .key = "clock-throttling",
        .text = fmt::format("GPU {} held its clocks back.", gpu.gpu),
        .evidence = fmt::format("{} in {} of the samples", gpu.why, share_text(gpu.share)),
        .advice = "look to cooling and the power limit; figures of this run are not comparable"};
    const Level clock = level(facts.session, fmt::format("gpu {} sm clock MHz", gpu.gpu));
    const Json& gpus = fields::child(facts.session.stamp, "gpus");
    const double most = gpus.is_array() && gpu.gpu < gpus.size()
                            ? fields::number(gpus[gpu.gpu], "max_sm_clock_mhz")
                            : 0;
    if (clock.count > 0 && most > clock.mean) {
      finding.evidence += fmt::format(", {:.0f} of {:.0f} MHz", clock.mean, most);
      finding.gain_ns =
          facts.unless_waiting(facts.part(Category::kernel) * (1 - clock.mean / most));
    }
    findings.push_back(finding);
  }
}

void find_slow_observers(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.range_ns("observers");
  if (ns <= least_observers * facts.step_ns) return;
  Finding finding{.key = "slow-observers",
                  .text = "Telling of steps takes the trainer's time.",
                  .evidence = "\"observers\": " + facts.of_step(ns),
                  .advice = "let them do less",
                  .gain_ns = facts.unless_waiting(0.9 * ns)};
  const std::int64_t every = fields::whole(facts.options, "log_every", 10);
  if (every > 0 && every < seldom_logged) {
    finding.flag = fmt::format("--log-every {}", 10 * every);
    finding.advice = fmt::format("log less often: {}", finding.flag);
  }
  findings.push_back(finding);
}

void find_slow_checkpoints(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.range_ns("checkpoint");
  if (ns <= least_checkpoints * facts.step_ns) return;
  Finding finding{.key = "slow-checkpoints",
                  .text = "Writing checkpoints takes the trainer's time.",
                  .evidence = fmt::format("{} a step, besides its own {}", time_text(ns),
                                          time_text(facts.step_ns)),
                  .advice = "write them to a faster disk; each epoch's is always written"};
  const std::int64_t every = fields::whole(facts.options, "checkpoint_every");
  if (every > 0) {
    finding.flag = fmt::format("--checkpoint-every {}", 4 * every);
    finding.advice = fmt::format("write them less often: {}", finding.flag);
  }
  findings.push_back(finding);
}

void find_long_evaluation(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.range_ns("evaluation") * facts.steps;
  const auto all = static_cast<double>(windows_ns(facts.session));
  if (all <= 0 || ns <= least_evaluation * all) return;
  findings.push_back({.key = "long-evaluation",
                      .text = "Evaluation takes much of the run.",
                      .evidence = fmt::format("{} of {} that were recorded ({})", time_text(ns),
                                              time_text(all), share_text(ns / all)),
                      .advice = "a smaller test split says as much; what trains is not slower"});
}

}  // namespace warpstep::profiler::advice
