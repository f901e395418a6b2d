// All questions asked of one view, and how far the answers may be trusted: losses, the cost of
// recording, disturbances of the run.
#include "profiler/analysis/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "profiler/analysis/device.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

// A span is two readings of the clock and 32 bytes in a ring: 81 ns measured, with what the
// reader takes for it. Runs that calibrated themselves record their own.
constexpr double span_ns = 100;
constexpr std::uint64_t large_clock_error_ns = 50'000;  // longer than many a kernel

// Threads record at the same time: a step is longer by what the trainer's records; where it waits
// for batches, by what each of the workers does.
double recorded_ns(const View& view, int awaited_workers) {
  const Session& session = view.session;
  const Json& costs = fields::child(session.stamp, "profiler");
  const double of_span = fields::number(costs, "span_ns", span_ns),
               of_activity = fields::number(costs, "activity_ns");
  double trainer = 0, workers = 0;
  for (const Span& span : session.spans) {
    if (!view.in_steps(span.begin_ns)) continue;
    if (span.thread == view.trainer)
      trainer += of_span;
    else if (is_worker(session.threads[span.thread].name))
      workers += of_span;
  }
  double all = awaited_workers > 0 ? std::max(trainer, workers / awaited_workers) : trainer;
  for (const Activity& activity : session.activities)
    if (view.in_steps(activity.start_ns)) all += of_activity;
  return all;
}

// Records of device and driver in windows, whose cost the run did not calibrate.
bool has_uncalibrated_records(const View& view) {
  const Session& session = view.session;
  if (fields::number(fields::child(session.stamp, "profiler"), "activity_ns") > 0) return false;
  return std::ranges::any_of(session.activities,
                             [&](const Activity& a) { return view.in_windows(a.start_ns); });
}

// Of lengths of steps, with the error of the median by McGill, Tukey and Larsen (1978).
struct Middle {
  double ns = 0, error_ns = 0;
};
Middle middle_of(std::vector<double> lengths) {
  std::ranges::sort(lengths);
  const std::size_t n = lengths.size();
  return {lengths[n / 2],
          1.57 * (lengths[3 * n / 4] - lengths[n / 4]) / std::sqrt(static_cast<double>(n))};
}

// How much longer steps are in windows than outside. The first ones warm up, as do those right
// before a window, and what a window leaves behind is written during those right after it.
void measure_cost(const View& view, Trust& trust) {
  constexpr std::uint64_t near = 10, first = 10;
  constexpr std::size_t least = 20;  // steps on either side
  const Session& session = view.session;
  std::vector<Interval> of_windows;  // numbers of steps, the end not included
  for (const Window& window : session.windows)
    of_windows.push_back({window.first_step - std::min(window.first_step, near),
                          std::max(window.last_step, window.last_step + near + 1)});
  const IntervalSet near_windows(std::move(of_windows));
  std::vector<double> inside, outside;
  for (const Step& step : session.steps) {
    const auto length = static_cast<double>(step.end_ns - step.begin_ns);
    if (view.in_windows(step.begin_ns) && view.in_windows(step.end_ns - 1))
      inside.push_back(length);
    else if (step.step - session.steps.front().step >= first && !near_windows.has(step.step))
      outside.push_back(length);
  }
  if (inside.size() < least || outside.size() < least) return;
  const Middle in = middle_of(std::move(inside)), out = middle_of(std::move(outside));
  trust.cost = Trust::Cost::measured;
  trust.overhead_ns = std::max(0.0, in.ns - out.ns);
  trust.overhead_error_ns = std::hypot(in.error_ns, out.error_ns);
}

std::size_t steps_of_windows(const View& view) {
  const Session& session = view.session;
  if (view.windows_ns() == 0) return 0;
  return static_cast<std::size_t>(
      std::count_if(session.steps.begin(), session.steps.end(), [&](const Step& step) {
        return view.in_windows(step.begin_ns) && view.in_windows(step.end_ns - 1);
      }));
}

std::string many(std::uint64_t count, const char* noun) {
  return counted(static_cast<double>(count), noun);
}

void note_losses(const Losses& losses, std::vector<std::string>& notes) {
  if (losses.entries > 0)
    notes.push_back(many(losses.entries, "span") +
                    " lost because the thread's ring was full: sums are too small");
  if (losses.activities > 0)
    notes.push_back(many(losses.activities, "device record") +
                    " dropped by CUPTI: device time is too small");
  if (losses.without_times > 0)
    notes.push_back(many(losses.without_times, "device record") +
                    " came without times and are left out");
  if (losses.cut_bytes > 0)
    notes.push_back("the session's file was cut off: its last " + many(losses.cut_bytes, "byte") +
                    " are left out");
  if (losses.damaged_chunks > 0)
    notes.push_back(fmt::format(
        "the session's file was damaged after it was written: {} of it ({}) cannot be read, and {} "
        "depend on them: all of these are left out",
        many(losses.damaged_chunks, "chunk"), many(losses.damaged_bytes, "byte"),
        many(losses.damaged_records, "record")));
}

std::string cut_text(const Window& window) {
  return fmt::format(
      "the session ends inside the window of steps {}-{}: the run was killed there, or still "
      "trained; {}",
      window.first_step, window.last_step,
      window.complete == 0 ? "the window is left out, because the GPU's work in it was not yet "
                             "written"
      : window.deep != 0   ? "the GPU's work in the window was not yet written"
                           : "the window counts up to its last whole step");
}

void note_windows(const Session& session, std::vector<std::string>& notes) {
  for (const Window& window : session.windows) {
    if (window.cut != 0)
      notes.push_back(cut_text(window));
    else if (window.complete == 0)
      notes.push_back(fmt::format("the run ended in the window of steps {}-{}, which is left out",
                                  window.first_step, window.last_step));
  }
  if (session.windows.empty())
    notes.emplace_back("no step was recorded with spans: only per-step totals are known");
}

// A run that ends by itself, by an error or by a signal that it handles records its end.
void note_end(const Session& session, std::vector<std::string>& notes) {
  const auto is_end = [&](const Phase& phase) { return session.name(phase.name) == "end"; };
  if (session.phases.empty() || session.steps.empty() ||
      std::ranges::any_of(session.phases, is_end))
    return;
  const Step& last = session.steps.back();
  std::string note = fmt::format(
      "the session ends after step {}, not with the run: it was killed, or still trained",
      last.step);
  constexpr double little = 64 << 20;  // bytes
  if (const auto left = available_bytes(session); left && *left < little)
    note += fmt::format(
        "; {:.0f} MiB of memory were left, and the kernel kills processes when memory runs out",
        *left / (1 << 20));
  notes.push_back(note);
}

void note_build(const Session& session, Trust& trust) {
  const std::string built =
      fields::text(fields::child(session.stamp, "program"), "compiler");  // "GNU 12.2.0, Debug"
  if (built.find("sanitizers") == built.npos && !built.ends_with("Debug")) return;
  trust.notes.push_back(
      fmt::format("the program was not built for speed ({}): its times are longer", built));
  trust.is_disturbed = true;
}

void note_counters(const Session& session, std::vector<std::string>& notes) {
  const std::string what = fields::text(fields::child(session.stamp, "profiler"), "counters");
  if (!what.empty())
    notes.push_back(fmt::format(
        "PM sampling locked the GPU's clocks for --profile-counters ({}): times differ from a "
        "run without it",
        what));
}

void note_gpus(const Session& session, std::vector<std::string>& notes) {
  for (const Throttle& gpu : throttled(session))
    notes.push_back(fmt::format("GPU {} throttled its clocks in {} of the samples ({})", gpu.gpu,
                                quantity(gpu.share, Unit::share), gpu.why));
}

constexpr double least_throttled = 0.01;  // of the periods
constexpr double least_pressure = 0.01;   // of the time

void note_contention(const Contention& lost, Trust& trust) {
  const auto note = [&](std::string text) {
    trust.notes.push_back(std::move(text));
    trust.is_disturbed = true;
  };
  if (!lost.tracer.empty()) note(fmt::format("{} traced this process", lost.tracer));
  if (lost.is_missed(lost.others_share.value_or(0)))
    note(fmt::format("other programs used {} of the CPU",
                     quantity(*lost.others_share, Unit::share)));
  if (lost.is_missed(lost.stolen_share))
    note(fmt::format("the hypervisor gave {:.2f} of {} to other virtual machines",
                     lost.stolen_share * lost.affinity_cores,
                     counted(lost.affinity_cores, "core")));
  if (lost.throttled_share.value_or(0) >= least_throttled)
    note(fmt::format("the CPU quota stopped the run in {} of its periods",
                     quantity(*lost.throttled_share, Unit::share)));
  if (const double pressure = pressure_on_run(lost); pressure >= least_pressure)
    note(fmt::format("memory was short: something waited for it {} of the time",
                     quantity(pressure, Unit::share)));
  else if (is_short_of_memory(lost))
    note("memory was short: the kernel had to reclaim pages for the run");
}

// Calls that compute faster than the measured peak say that it is too low, except those of
// libraries that need fewer operations than are counted, as cuDNN's Winograd. Bytes say nothing:
// caches are faster than memory.
void note_peaks(const Work& work, Trust& trust) {
  constexpr double above_peak = 1.1;  // a large product differs from the measured one by less
  const double peak = work.peaks.flops_per_second;
  const auto above = std::ranges::count_if(work.calls, [&](const CallRow& call) {
    if (peak <= 0 || call.flops <= 0) return false;
    const double executed = call.executed_flops / call.flops;
    return executed * call.flops_per_second > above_peak * peak &&
           (executed < 1 || call.implementation.find("winograd") == std::string::npos);
  });
  if (above == 0) return;
  trust.notes.push_back(many(static_cast<std::uint64_t>(above), "call") +
                        " computed faster than the measured peak, so the peak is too low: every "
                        "share of it is too large");
  trust.is_disturbed = true;
}

// Clocks are lower, or the host runs other virtual machines on the same cores, of which none here
// can tell. Where other programs are named they explain it.
void note_slow_machine(const View& view, const Peaks& peaks, const Contention& found,
                       Trust& trust) {
  constexpr double least_of_best = 0.8;  // measurements of quiet machines differ by a tenth
  if (peaks.flops_now <= 0 || peaks.flops_now >= least_of_best * peaks.flops_per_second) return;
  if (found.is_missed(found.others_share.value_or(0)) || found.is_missed(found.stolen_share))
    return;
  if (found.team_cpus > 0 && found.team_cpus < kernel_threads(view)) return;  // they take turns
  const bool on_host = view.session.computes_on_host();
  trust.notes.push_back(fmt::format(
      "when the run ended, this {} reached {} of the best peak seen on it ({} of {}): {}",
      on_host ? "machine" : "GPU", quantity(peaks.flops_now / peaks.flops_per_second, Unit::share),
      quantity(peaks.flops_now, Unit::per_second_flops),
      quantity(peaks.flops_per_second, Unit::per_second_flops),
      on_host ? "its clocks are lower, or its host runs other work on the same cores"
              : "its clocks or its power limit are lower, or others use it"));
  trust.is_disturbed = true;
}

// Of a device's waits half or more, where its feeder shows what they are for.
bool waits_for_batches(const Analysis& analysis) {
  const FeedWaits& feed = analysis.feed;
  return analysis.stall.is_stalled && 2 * feed.batch_ns >= feed.all_ns();
}

}  // namespace

Trust find_trust(const View& view, const Breakdown& breakdown, int awaited_workers) {
  const Session& session = view.session;
  Trust trust{.losses = session.losses, .notes = session.notes};
  if (const std::size_t steps = steps_of_windows(view); steps > 0)
    trust.overhead_ns = recorded_ns(view, awaited_workers) / static_cast<double>(steps);
  if (has_uncalibrated_records(view)) {
    trust.cost = Trust::Cost::unknown;
    measure_cost(view, trust);
  }
  if (breakdown.step_ns > 0) {
    trust.overhead_share = trust.overhead_ns / breakdown.step_ns;
    trust.overhead_error_share = trust.overhead_error_ns / breakdown.step_ns;
  }
  for (const ClockReading& reading : session.clocks)
    if (reading.device_ns != 0)
      trust.clock_error_ns = std::max(trust.clock_error_ns, reading.error_ns);
  note_losses(session.losses, trust.notes);
  note_windows(session, trust.notes);
  note_end(session, trust.notes);
  if (trust.overhead_share >= 0.01 && trust.overhead_ns > trust.overhead_error_ns)
    trust.notes.push_back(fmt::format(
        "recording cost {} per step ({}): times of short calls are too large",
        quantity(trust.overhead_ns, Unit::ns), quantity(trust.overhead_share, Unit::share)));
  if (!session.devices.empty() && trust.clock_error_ns >= large_clock_error_ns)
    trust.notes.push_back(
        fmt::format("host and device times may be off by {} against each other",
                    quantity(static_cast<double>(trust.clock_error_ns), Unit::ns)));
  note_build(session, trust);
  note_counters(session, trust.notes);
  note_gpus(session, trust.notes);
  note_contention(contention(view), trust);
  return trust;
}

bool costs_little(const Trust& trust) {
  return trust.cost != Trust::Cost::unknown &&
         trust.overhead_share + trust.overhead_error_share < 0.01;
}

Analysis analyse(const Session& session, const RanksView* job) {
  const View view(session);
  Analysis analysis;
  analysis.breakdown = break_down(view);
  analysis.contention = contention(view);
  analysis.devices = device_metrics(view);
  analysis.fill = device_fill(view);
  analysis.work = find_work(view);
  analysis.memory = memory_timeline(session);
  analysis.loader = loader_view(view, &analysis.breakdown);
  analysis.stall = diagnose(analysis.loader, view);
  analysis.feed = feed_waits(view);
  analysis.path = critical_path(view);
  analysis.run = whole_run(session);
  analysis.slow_steps = slow_steps(session);
  if (job != nullptr) analysis.slow_rank = job->slow;
  analysis.trust = find_trust(view, analysis.breakdown,
                              waits_for_batches(analysis) ? analysis.loader.workers : 0);
  note_peaks(analysis.work, analysis.trust);
  note_slow_machine(view, analysis.work.peaks, analysis.contention, analysis.trust);
  analysis.findings = find_findings(view, analysis);
  return analysis;
}

}  // namespace warpstep::profiler
