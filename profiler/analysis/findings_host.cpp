// Findings about the machine, the trainer's work outside of steps, and the loader: there the
// cheapest remedy that helps, by replay.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/analysis/device.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double full_cpu = 95;       // %, of all cores
constexpr double crowded_cpu = 80;    // likewise, where more threads compute than there are cores
constexpr double full_memory = 0.90;  // of it: torch_tb_profiler's
constexpr double least_throttled = 0.10;  // of the samples
constexpr double least_observers = 0.05;  // of a step
constexpr std::int64_t seldom_logged = 1000;

struct Memory {
  double used = 0, total = 0;  // bytes
  std::string what;
};

Memory device_memory(const Facts& facts) {
  const Session& session = facts.session;
  Memory memory;
  for (const Device& device : session.devices) {
    const MetricLevel used =
        metric_level(facts.view, fmt::format("gpu {} memory used bytes", device.id));
    const double planned = fields::number(fields::child(session.program, "memory"), "total_bytes");
    const double bytes = std::max(used.most, planned);
    const auto total = static_cast<double>(device.total_memory);
    if (total > 0 && bytes / total > (memory.total > 0 ? memory.used / memory.total : 0))
      memory = {bytes, total, fmt::format("GPU {}", device.id)};
  }
  return memory;
}

Memory host_memory(const Facts& facts) {
  const MetricLevel used = metric_level(facts.view, "process rss bytes");
  const MetricLevel left = metric_level(facts.view, "memory available bytes");
  if (used.count == 0 || left.count == 0) return {};
  return {used.most, used.most + left.mean, "the host"};
}

// Of kernels whose `threads` equal shares are computed by fewer `cores` in rounds: the time in
// which the last round leaves cores idle.
double uneven_share(int threads, int cores) {
  const double each = static_cast<double>(threads) / cores;
  return 1 - each / std::ceil(each);
}

}  // namespace

void find_oversubscribed(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const int all = usable_cores(facts.session);
  const MetricLevel cpu = metric_level(facts.view, "cpu %");
  if (!facts.on_host || all < 1 || cpu.count == 0) return;
  const auto given = static_cast<int>(
      std::clamp<std::int64_t>(fields::whole(facts.session.loader, "kernel_threads",
                                             fields::whole(facts.options, "threads")),
                               0, 4096));
  const int threads = given > 0 ? given : all;
  if (threads + view.workers <= all) return;
  const bool crowded = threads > all && cpu.mean >= crowded_cpu;
  if (!crowded && (cpu.mean < full_cpu || facts.analysis.stall.is_stalled)) return;
  Finding finding{
      .key = "oversubscribed",
      .text = "There are more threads than cores.",
      .evidence = fmt::format("{} of kernels and {} on {}, CPU at {}", counted(threads, "thread"),
                              counted(view.workers, "worker"), counted(all, "core"),
                              quantity(cpu.mean / 100, Unit::share))};
  const int enough =
      view.step_ns > 0 ? std::max(1, static_cast<int>(std::ceil(view.work_ns / view.step_ns))) : 1;
  if (threads > all) {
    finding.flag = fmt::format("--threads {}", all);
    finding.advice = fmt::format("use {}: more threads than cores gain nothing", finding.flag);
    finding.gain_ns = facts.part(Category::kernel) * uneven_share(threads, all);
  } else if (view.work_ns > 0 && enough < view.workers) {
    finding.flag = fmt::format("--workers {}", enough);
    finding.advice = fmt::format("use {}: this many workers keep up with the step", finding.flag);
    finding.gain_ns =
        std::max(0.0, predicted_gain(LoaderModel(view, facts.view, false), {.workers = enough}));
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

void find_full_memory(const Facts& facts, std::vector<Finding>& findings) {
  const Memory memory = facts.on_host ? host_memory(facts) : device_memory(facts);
  if (memory.total <= 0 || memory.used <= full_memory * memory.total) return;
  findings.push_back(
      {.key = "memory-high",
       .text = fmt::format("The memory of {} is nearly full.", memory.what),
       .evidence =
           fmt::format("{:.1f} of {:.1f} GiB ({})", memory.used / (1 << 30),
                       memory.total / (1 << 30), quantity(memory.used / memory.total, Unit::share)),
       .advice = "use a smaller batch: it leaves memory for other programs and larger inputs",
       .flag = facts.smaller_batch()});
}

void find_throttling(const Facts& facts, std::vector<Finding>& findings) {
  for (const Throttle& gpu : throttled(facts.session)) {
    if (gpu.share < least_throttled) continue;
    Finding finding{
        .key = "clock-throttling",
        .text = fmt::format("GPU {} throttled its clocks.", gpu.gpu),
        .evidence =
            fmt::format("{} in {} of the samples", gpu.why, quantity(gpu.share, Unit::share)),
        .advice =
            "check cooling and the power limit; do not compare this run's figures with others"};
    const MetricLevel clock = metric_level(facts.view, fmt::format("gpu {} sm clock MHz", gpu.gpu));
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
                  .text = "Per-step logging is a significant part of the step.",
                  .evidence = "\"observers\": " + facts.of_step(ns),
                  .advice = "do less work in the observers",
                  .gain_ns = facts.unless_waiting(0.9 * ns)};
  const std::int64_t every = fields::whole(facts.options, "log_every", 10);
  if (every > 0 && every < seldom_logged) {
    finding.flag = fmt::format("--log-every {}", 10 * every);
    finding.advice = fmt::format("log less often: {}", finding.flag);
  }
  findings.push_back(finding);
}

namespace {

constexpr double least_wait =
    0.05;  // of a step, where the loader reported no work: torch_tb_profiler's
constexpr double least_gain = 0.005;       // of a step: what a first remedy must bring
constexpr double least_contention = 0.05;  // of a step
constexpr double least_transform = 0.5;    // of the loader's work

std::string waited(const Facts& facts) {
  const Stall& stall = facts.analysis.stall;
  return fmt::format("{} of {} per step ({})", quantity(stall.wait_ns, Unit::ns),
                     quantity(stall.step_ns, Unit::ns),
                     quantity(stall.wait_ns / stall.step_ns, Unit::share));
}

std::string stages_text(const LoaderView& view) {
  std::string text;
  for (std::size_t i = 0; i < view.stages.size(); ++i)
    if (view.stage_ns[i] >= 0.05 * view.work_ns)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", view.stages[i],
                          quantity(view.stage_ns[i] / view.work_ns, Unit::share));
  return text;
}

// The first that helps is the cheapest: a flag before a conversion of the set. Its gain is its own;
// what could follow is named.
const RemedyChoice* first_of(const std::vector<RemedyChoice>& choices, double step_ns) {
  for (const RemedyChoice& choice : choices)
    if (choice.gain_ns >= least_gain * step_ns) return &choice;
  const auto best = std::max_element(
      choices.begin(), choices.end(),
      [](const RemedyChoice& a, const RemedyChoice& b) { return a.gain_ns < b.gain_ns; });
  return best != choices.end() && best->gain_ns > 0 ? &*best : nullptr;
}

void advise(const std::vector<RemedyChoice>& choices, double step_ns, Finding& finding) {
  const RemedyChoice* const first = first_of(choices, step_ns);
  if (first == nullptr) return;
  finding.advice = first->advice;
  finding.flag = first->flag;
  finding.gain_ns = first->gain_ns;
  std::string then;
  for (const RemedyChoice* choice = first + 1; choice < choices.data() + choices.size(); ++choice)
    if (choice->gain_ns >= least_gain * step_ns)
      then += (then.empty() ? "" : ", then ") + choice->flag;
  if (!then.empty()) finding.advice += "; after that " + then;
  std::string also;
  for (const RemedyChoice* choice = choices.data(); choice < first; ++choice)
    also += (also.empty() ? "" : ", ") + choice->flag;
  if (!also.empty()) finding.advice += fmt::format("; {} gains a little more", also);
}

// The option that keeps all other transforms; "" where the loader did not report this one.
std::string recipe_without(const Facts& facts, std::string_view transform) {
  const std::string recipe = fields::text(facts.session.loader, "transforms");
  std::string kept;
  bool is_there = false;
  for (std::size_t at = 0; at < recipe.size();) {
    const std::size_t end = std::min(recipe.find(',', at), recipe.size());
    const std::string part = recipe.substr(at, end - at);
    at = end + 1;
    if (part.substr(0, part.find('=')) == transform)
      is_there = true;
    else
      kept += (kept.empty() ? "" : ",") + part;
  }
  if (!is_there) return "";
  return kept.empty() ? "--transforms none" : fmt::format("--transforms \"{}\"", kept);
}

}  // namespace

void find_data_wait(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  Finding finding{.key = "data-wait", .text = "The step waits for the loader."};
  if (facts.session.steps.size() == 1) return;  // which always waits for the first batch
  if (view.work_ns <= 0) {
    if (facts.share(Category::data) <= least_wait) return;
    finding.evidence = fmt::format(
        "{} of {} per step ({})", quantity(facts.part(Category::data), Unit::ns),
        quantity(facts.step_ns, Unit::ns), quantity(facts.share(Category::data), Unit::share));
    finding.advice = "let the loader find the number of workers";
    if (fields::whole(facts.options, "workers") > 0) finding.flag = "--workers auto";
    findings.push_back(finding);
    return;
  }
  if (!stall.is_stalled) return;
  const LoaderModel model(view, facts.view, stall.bound == Bound::io);
  const std::vector<RemedyChoice> choices = remedies(facts, model, true);
  // find_slow_disk() reports it.
  if (choices.empty() && stall.bound == Bound::io) return;
  finding.evidence = fmt::format("{}; {} at {} worker time per batch: {}", waited(facts),
                                 counted(view.workers, "worker"), quantity(view.work_ns, Unit::ns),
                                 stages_text(view));
  finding.advice = "use a machine with more cores, or fewer transforms";
  advise(choices, facts.step_ns, finding);
  findings.push_back(finding);
}

void find_loader_contention(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!facts.on_host || stall.is_stalled || view.work_ns <= 0 || stall.bound == Bound::io) return;
  const LoaderModel model(view, facts.view, false);
  const double lost = model.measured_step_ns() - model.free_step_ns();
  if (lost < least_contention * model.measured_step_ns()) return;
  const std::vector<RemedyChoice> choices = remedies(facts, model, false);
  if (choices.empty()) return;
  Finding finding{
      .key = "loader-contention",
      .text = "The loader's workers take cores from the kernels.",
      .evidence = fmt::format("{} worker time per batch costs a step of {} about {}: {}",
                              quantity(view.work_ns, Unit::ns), quantity(stall.step_ns, Unit::ns),
                              quantity(lost, Unit::ns), stages_text(view))};
  advise(choices, facts.step_ns, finding);
  if (!finding.flag.empty()) findings.push_back(finding);
}

void find_slow_disk(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!stall.is_stalled || stall.bound != Bound::io || view.work_ns <= 0) return;
  const MetricLevel disk = metric_level(facts.view, "disk busy %");
  Finding finding{.key = "slow-disk",
                  .text = "Workers wait for the disk.",
                  .evidence = fmt::format("{}; {} is {} of the workers' time", waited(facts),
                                          stall.stage, quantity(stall.stage_share, Unit::share))};
  if (disk.count > 0)
    finding.evidence += fmt::format(", disk busy {}", quantity(disk.mean / 100, Unit::share));
  const LoaderModel model(view, facts.view, true);
  const double read = stage_share(view, "read");
  if (const auto pack = pack_command(facts); pack && is_loose(facts)) {
    finding.flag = *pack;
    finding.advice = fmt::format("run `{}` once: a few large files can be read ahead", *pack);
    finding.gain_ns = predicted_gain(model, {.work_scale = 1 - read * (1 - packed_read)});
  } else if (facts.option("shuffle", "full") == "full") {
    finding.flag = "--shuffle window";
    finding.advice = "use --shuffle window: it reads neighbouring samples together";
  } else if (facts.option("data_io", "mmap") == "mmap") {
    finding.flag = "--data-io pread";
    finding.advice = "on a network mount, read instead of mapping";
  } else {
    finding.advice = "copy the set to a faster disk";
  }
  findings.push_back(finding);
}

void find_slow_transform(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!stall.is_stalled || view.work_ns <= 0) return;
  const bool built_in = stall.stage == "read" || stall.stage == "decode" ||
                        stall.stage == "resize" || stall.stage == "pixels" || stall.stage == "copy";
  if (built_in || stall.stage_share < least_transform) return;
  const LoaderModel model(view, facts.view, stall.bound == Bound::io);
  // What it costs once there are enough workers: taking it out changes what is learnt.
  const int workers = std::max(view.workers, stall.best_workers);
  const double with = model.predict({.workers = workers}).step_ns;
  const double without =
      model.predict({.workers = workers, .work_scale = std::max(0.01, 1 - stall.stage_share)})
          .step_ns;
  findings.push_back(
      {.key = "slow-transform",
       .text = fmt::format("The transform {} takes most of the loader's time.", stall.stage),
       .evidence = fmt::format("{} of {} worker time per batch; {}",
                               quantity(stall.stage_share, Unit::share),
                               quantity(view.work_ns, Unit::ns), waited(facts)),
       .advice =
           fmt::format("leave {} out, or apply it to smaller images: after a crop", stall.stage),
       .flag = recipe_without(facts, stall.stage),
       .gain_ns = with - without});
}

}  // namespace warpstep::profiler
