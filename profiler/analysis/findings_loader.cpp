// Findings about the loader.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/text.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/stall.h"

namespace warpstep::profiler {
namespace {

constexpr double least_wait =
    0.05;  // of a step, where the loader reported no work: torch_tb_profiler's
constexpr std::size_t least_counted = 8;   // steps without windows: the first ones fill queues
constexpr double least_busy = 0.5;         // of a step, in which each worker works
constexpr double least_gain = 0.005;       // of a step: what a first remedy must bring
constexpr double least_contention = 0.05;  // of a step
constexpr double least_transform = 0.5;    // of the loader's work

// Which other findings name: what stages, samples and workers took says nothing then.
bool waits_for_storage(const Facts& facts) {
  return lacks_set_in_memory(facts) || reads_are_limited(facts);
}

std::string waited(const Facts& facts) {
  const Stall& stall = facts.analysis.stall;
  return fmt::format("{} of {} per step ({})", quantity(stall.wait_ns, Unit::ns),
                     quantity(stall.step_ns, Unit::ns),
                     quantity(stall.wait_ns / stall.step_ns, Unit::share));
}

std::string stages_text(const LoaderView& view) {
  std::string text;
  double rest_ns = view.work_ns;
  const auto add = [&](const std::string& what, double ns) {
    rest_ns -= ns;
    if (ns >= 0.05 * view.work_ns)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what,
                          quantity(ns / view.work_ns, Unit::share));
  };
  for (std::size_t i = 0; i < view.stages.size(); ++i) add(view.stages[i], view.stage_ns[i]);
  add("in no stage", rest_ns);
  return text;
}

// The first that helps is the cheapest: a flag before a conversion of the set. Its gain is its own;
// what could follow is named.
const RemedyChoice* first_of(const std::vector<RemedyChoice>& choices, double step_ns) {
  for (const RemedyChoice& choice : choices)
    if (choice.gain.ns >= least_gain * step_ns) return &choice;
  const auto best = std::max_element(
      choices.begin(), choices.end(),
      [](const RemedyChoice& a, const RemedyChoice& b) { return a.gain.ns < b.gain.ns; });
  return best != choices.end() && best->gain.ns > 0 ? &*best : nullptr;
}

void promise(const Gain& gain, double step_ns, Finding& finding) {
  finding.gain_ns = gain.ns;
  finding.gain_least_ns = finding.gain_most_ns = 0;
  if (gain.most_ns - gain.least_ns < least_range * step_ns) return;
  finding.gain_least_ns = gain.least_ns;
  finding.gain_most_ns = gain.most_ns;
}

void advise(const std::vector<RemedyChoice>& choices, double step_ns, Finding& finding) {
  const RemedyChoice* const first = first_of(choices, step_ns);
  if (first == nullptr) return;
  finding.advice = first->advice;
  finding.flag = first->flag;
  promise(first->gain, step_ns, finding);
  std::string then;
  for (const RemedyChoice* choice = first + 1; choice < choices.data() + choices.size(); ++choice)
    if (choice->gain.ns >= least_gain * step_ns)
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
  return "--transforms " + shell_word(kept.empty() ? "none" : kept);
}

bool is_built_in(const std::string& stage) {
  constexpr std::array<std::string_view, 5> stages{"read", "decode", "resize", "pixels", "copy"};
  return std::ranges::find(stages, stage) != stages.end();
}

// Takes cores, but changes what is learnt: the last that is advised.
std::optional<RemedyChoice> without_transform(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  const std::string flag = recipe_without(facts, stall.stage);
  if (flag.empty() || is_built_in(stall.stage) || stall.stage_share < least_transform)
    return std::nullopt;
  const double own = cpu_share_of(facts.analysis.loader, stall.stage);
  return RemedyChoice{
      flag, fmt::format("leave {} out, or apply it to smaller images: after a crop", stall.stage),
      at_least_none(model.gain({.cpu = std::max(0.01, 1 - own)}))};
}

constexpr double short_step_ns = 2e6;  // a late thread is a large part of it
constexpr int steps_per_launch = 8;

// Where no setting of the loader helps: what the device waited for. "" where that is not known.
std::string cause_text(const FeedWaits& feed) {
  if (feed.all_ns() <= 0) return "";
  const auto share = [&](double ns) { return quantity(ns / feed.all_ns(), Unit::share); };
  return fmt::format(
      "; for {} of it the loader had no batch ready, for {} no buffer of the device "
      "was free, for {} the batch was being copied, for {} it was on the device and "
      "the trainer's thread had yet to wake up",
      share(feed.batch_ns), share(feed.buffer_ns), share(feed.copy_ns), share(feed.late_ns));
}

// A thread that the device, or a copy, has to wake up before the next launch.
void advise_on_late_threads(const Facts& facts, Finding& finding) {
  finding.text = "The device waits until a thread of the host has woken up, not for data.";
  if (facts.step_ns < short_step_ns && fields::whole(facts.options, "steps_per_launch", 1) == 1 &&
      !fields::flag(facts.options, "no_graph")) {
    finding.advice = fmt::format(
        "steps are short: --steps-per-launch {} needs the host once per {} steps (with "
        "--profile steps), and {} less often per sample",
        steps_per_launch, steps_per_launch, facts.larger_batch());
    return;
  }
  finding.advice =
      "find what keeps the trainer's thread from a core: other programs, a quota, a virtual "
      "machine whose processors sleep; --pin-cpus auto keeps the loader's threads off its core";
}

void advise_without_remedy(const Facts& facts, Finding& finding) {
  const LoaderView& view = facts.analysis.loader;
  const FeedWaits& feed = facts.analysis.feed;
  finding.evidence += cause_text(feed);
  if (feed.late_ns + feed.buffer_ns > 0.5 * feed.all_ns())
    advise_on_late_threads(facts, finding);
  else if (feed.copy_ns > 0.5 * feed.all_ns())
    finding.advice =
        facts.reads_text()
            ? "copies of batches take longer than the steps that run in parallel: use a larger "
              "--batch, which needs fewer"
            : "copies of batches take longer than the steps that run in parallel: use smaller "
              "inputs, or --tier resident if the data set fits into the device's memory";
  else if (facts.lacks_cores())
    finding.advice = "leave the loader as it is until the run has its cores";
  else if (view.work_ns / std::max(1, view.workers) < least_busy * facts.step_ns)
    finding.advice =
        "the workers have enough time: find what keeps their threads from a core, or delays their "
        "reads";
  else if (2 * view.blocked_ns > view.work_ns)
    finding.advice = "the workers wait for reads: copy the data to a faster disk";
  else
    finding.advice = "use a machine with more cores, or less work per sample";
}

}  // namespace

void find_data_wait(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  Finding finding{.key = "data-wait", .text = "The step waits for the loader."};
  if (facts.session.steps.size() == 1) return;  // which always waits for the first batch
  if (facts.view.windows.empty() && facts.view.counted.size() < least_counted) return;
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
  if (!stall.is_stalled || waits_for_storage(facts)) return;
  const LoaderModel model(view, facts.view);
  const std::vector<RemedyChoice> choices = remedies(facts, model, true);
  // find_slow_reads() reports it.
  if (stall.bound == Bound::io && first_of(choices, facts.step_ns) == nullptr) return;
  const std::string stages = stages_text(view);
  finding.evidence = fmt::format("{}; {} at {} worker time per batch{}{}", waited(facts),
                                 counted(view.workers, "worker"), quantity(view.work_ns, Unit::ns),
                                 stages.empty() ? "" : ": ", stages);
  if (!model.fits()) finding.evidence += "; " + model.misfit_text();
  if (first_of(choices, facts.step_ns) == nullptr)
    advise_without_remedy(facts, finding);
  else
    advise(choices, facts.step_ns, finding);
  findings.push_back(finding);
}

void find_loader_contention(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!facts.on_host || stall.is_stalled || view.work_ns <= 0 || stall.bound == Bound::io) return;
  if (stall.step_ns <= 0) return;  // of a run of one step, which does not count
  if (spins_on_needed_cores(facts)) return;
  const LoaderModel model(view, facts.view);
  // Without their work other programs take what they took before.
  constexpr double hardly_any = 0.01;
  const Predicted without =
      model.predict({.cpu = hardly_any, .latency = hardly_any, .bytes = hardly_any});
  const double lost = model.as_it_was().step_ns - without.step_ns;
  if (lost < least_contention * model.measured_step_ns()) return;
  std::vector<RemedyChoice> choices = remedies(facts, model, false);
  if (auto choice = without_transform(facts, model)) choices.push_back(std::move(*choice));
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

namespace {

// Of the bytes that are read now: what a packed set must be below where they are what is slow.
constexpr double most_packed_bytes = 0.9;
constexpr double most_few = 0.1;  // of the samples: what few are; those of one class of ten may be

// "24.1 MB/s with 1.9 reads at once".
std::string source_text(const Facts& facts) {
  const SourceFit& source = facts.analysis.loader.source;
  std::string text;
  if (source.bytes_per_s > 0)
    text += fmt::format(", {:.3g} MB/s with {:.1f} reads at once", source.bytes_per_s / 1e6,
                        source.readers);
  if (const MetricLevel disk = metric_level(facts.view, "disk busy %"); disk.count > 0)
    text += fmt::format(", disk busy {}", quantity(disk.mean / 100, Unit::share));
  return text;
}

}  // namespace

void find_slow_reads(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!stall.is_stalled || stall.bound != Bound::io || view.work_ns <= 0) return;
  if (waits_for_storage(facts)) return;
  // find_slow_samples() reports it.
  if (view.service.share_of_all <= most_few && view.service.beyond_share >= 0.5) return;
  const bool shared = view.source.tells_apart() && view.source.bandwidth_share >= 0.5;
  Finding finding{
      .key = shared ? "low-bandwidth" : "slow-disk",
      .text = shared ? view.source.is_saturated()
                           ? "Reads already use all of the source's bandwidth; more workers would "
                             "share it."
                           : "Reads take long because of the source's bandwidth, not its latency."
              : view.source.is_serial
                  ? "Reads are served one at a time: more workers would wait for each other."
                  : "Workers wait for the disk.",
      .evidence =
          fmt::format("{}; reads are {} of the workers' time{}", waited(facts),
                      quantity(view.blocked_ns / view.work_ns, Unit::share), source_text(facts))};
  if (view.source.most_ns_per_byte > 0 && !view.source.tells_apart())
    finding.evidence += ", which may be its latency or its bandwidth";
  const LoaderModel model(view, facts.view);
  std::vector<RemedyChoice> choices;
  const auto add = [&](std::optional<RemedyChoice> choice) {
    if (choice && choice->gain.ns >= least_gain * facts.step_ns)
      choices.push_back(std::move(*choice));
  };
  add(keep_decoded(facts, model));
  // Through a slow source a packed set is as slow as its bytes, whatever opening files takes.
  if (!shared || packed_bytes(facts) <= most_packed_bytes) add(pack(facts, model));
  if (!choices.empty()) {
    advise(choices, facts.step_ns, finding);
  } else if (!shared && !facts.reads_text() && !is_loose(facts.view) &&
             facts.option("shuffle", "full") == "full") {
    finding.flag = "--shuffle window";
    finding.advice = "use --shuffle window: it reads neighbouring samples together";
  } else if (!shared && !is_loose(facts.view) && facts.option("data_io", "mmap") == "mmap") {
    finding.flag = "--data-io pread";
    finding.advice = "on a network mount, read instead of mapping";
  } else {
    finding.advice = "copy the set to a faster disk";
  }
  if (!shared && view.source.is_serial)
    finding.advice +=
        "; or find what serves one read at a time: a lock of a file system or a library, which "
        "`strace -f -T -p PID` shows, or a disk without a queue";
  constexpr double idle_disk = 5;  // %
  if (const MetricLevel disk = metric_level(facts.view, "disk busy %");
      disk.count > 0 && disk.mean < idle_disk)
    finding.advice += "; no disk of this machine was busy: reads wait for a network, or for a lock";
  findings.push_back(finding);
}

namespace {

constexpr double least_slowness = 2;    // of a worker, in the fastest
constexpr double least_few_time = 0.2;  // of the workers' time

}  // namespace

void find_slow_worker(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const auto slow = std::ranges::max_element(view.by_worker, {}, &WorkerRow::slowness);
  if (slow == view.by_worker.end() || slow->slowness < least_slowness) return;
  if (waits_for_storage(facts)) return;
  const LoaderModel model(view, facts.view);
  Finding finding{
      .key = "slow-worker",
      .text = fmt::format("{} is much slower than the loader's other workers.", slow->thread),
      .evidence = fmt::format("its samples take {:.3g} times as long as the fastest worker's; "
                              "it made {} of {} samples",
                              slow->slowness, slow->samples, view.samples.size()),
      .advice =
          "find what its thread waits for: `top -H -p PID` shows a busy core, `strace -T -p "
          "TID` slow reads; --pin-cpus keeps threads off cores that others use"};
  promise(model.gain({.even_workers = true}), facts.step_ns, finding);
  if (finding.gain_ns > 0) findings.push_back(finding);
}

namespace {

// For what makes few samples slow, by what samples are.
std::string where_to_look(const Facts& facts) {
  if (is_loose(facts.view)) return "look at these files and at the disk that holds them";
  const LoaderView& view = facts.analysis.loader;
  if (!facts.reads_text() && 2 * view.blocked_ns <= view.work_ns)
    return "look at these samples: they may be larger than the others";
  return "find what delays single reads: the disk or the network that holds the set "
         "(`strace -f -T -p PID` shows the calls)";
}

}  // namespace

void find_slow_samples(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Concentration& few = view.service;
  if (!facts.analysis.stall.is_stalled || few.share_of_all > most_few) return;
  if (few.beyond_share < least_few_time || waits_for_storage(facts)) return;
  const LoaderModel model(view, facts.view);
  Finding finding{
      .key = "slow-samples",
      .text = "A few samples take much of the loader's time.",
      .evidence = fmt::format("{} of the workers' time is beyond what a usual sample takes, and "
                              "{} of the samples have {} of that{}",
                              quantity(few.beyond_share, Unit::share),
                              quantity(few.share_of_all, Unit::share),
                              quantity(few.share_of_sum, Unit::share), slowest_text(facts.session)),
      .advice = where_to_look(facts)};
  if (facts.lacks_cores())
    finding.advice =
        "look again where cores are free: other programs may be what delays samples, by the cores, "
        "the cache or the disk that they use; if these stay slow, " +
        finding.advice;
  const auto deeper = deeper_queue(facts, model);
  if (deeper && deeper->gain.ns >= least_gain * facts.step_ns) {
    finding.flag = deeper->flag;
    finding.advice += fmt::format("; {} absorbs them", deeper->flag);
    promise(deeper->gain, facts.step_ns, finding);
  } else {
    promise(model.gain({.even_samples = true}), facts.step_ns, finding);
  }
  findings.push_back(finding);
}

namespace {

// The longest stage that is no read.
std::string longest_unread_stage(const LoaderView& view) {
  std::string longest;
  double most = 0;
  for (std::size_t i = 0; i < view.stages.size(); ++i)
    if (view.stages[i] != "read" && view.stage_ns[i] > most)
      most = view.stage_ns[i], longest = view.stages[i];
  return longest;
}

}  // namespace

// Workers that neither read, nor run, nor want a core.
void find_waiting_stage(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  const std::string stage = longest_unread_stage(view);
  if (!stall.is_stalled || stall.bound != Bound::asleep || stage.empty()) return;
  if (waits_for_storage(facts)) return;
  const LoaderModel model(view, facts.view);
  Finding finding{.key = "waiting-stage",
                  .text = fmt::format("The loader's workers sleep in {}.", stage),
                  .evidence = fmt::format(
                      "{}; for {} of their time workers neither ran, nor wanted a core, nor read",
                      waited(facts), quantity(view.asleep_ns / view.work_ns, Unit::share)),
                  .advice = is_built_in(stage)
                                ? "find what it waits for: `strace -f -T -p PID` shows the calls "
                                  "that take long, `perf sched timehist -p PID` who wakes it up"
                                : "find what it waits for: a lock that all workers take, a "
                                  "sleep, a request to another process; `strace -f -T -p PID` "
                                  "shows the call"};
  if (view.workers > 1) finding.advice += "; more workers help unless they wait for one lock";
  promise(model.gain({.asleep = 0}), facts.step_ns, finding);
  findings.push_back(finding);
}

void find_slow_transform(const Facts& facts, std::vector<Finding>& findings) {
  const LoaderView& view = facts.analysis.loader;
  const Stall& stall = facts.analysis.stall;
  if (!stall.is_stalled || view.work_ns <= 0) return;
  if (is_built_in(stall.stage) || stall.stage_share < least_transform) return;
  if (stall.bound == Bound::asleep) return;  // find_waiting_stage() reports it
  const LoaderModel model(view, facts.view);
  // Taking it out changes what is learnt: where more workers make up for it, it costs nothing.
  const int workers = std::max(view.workers, stall.best_workers);
  const double with = model.predict({.workers = workers}).step_ns;
  const double left = std::max(0.01, 1 - cpu_share_of(view, stall.stage));
  const double without = model.predict({.workers = workers, .cpu = left}).step_ns;
  Finding finding{
      .key = "slow-transform",
      .text = fmt::format("The transform {} takes most of the loader's time.", stall.stage),
      .evidence = fmt::format("{} of {} worker time per batch; {}",
                              quantity(stall.stage_share, Unit::share),
                              quantity(view.work_ns, Unit::ns), waited(facts)),
      .advice =
          fmt::format("leave {} out, or apply it to smaller images: after a crop", stall.stage),
      .flag = recipe_without(facts, stall.stage),
      .gain_ns = with - without};
  if (finding.gain_ns >= least_gain * facts.step_ns)
    promise(model.gain({.cpu = left}), facts.step_ns, finding);
  findings.push_back(finding);
}

}  // namespace warpstep::profiler
