// What the loader did, from its spans or, without them, from its counters; why the trainer waits
// for data, and the cheapest setting without waiting.

#include "profiler/analysis/loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "engine/core/text.h"
#include "profiler/analysis/contention.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t longest = 128;
constexpr double one_in_p = 0.9;  // of all waiting
constexpr double least = 0.02;    // of a step: what counts as a stall

}  // namespace

int stall_period(const std::vector<std::uint64_t>& waits_ns, double step_ns) {
  const auto total =
      static_cast<double>(std::accumulate(waits_ns.begin(), waits_ns.end(), std::uint64_t{0}));
  if (total < least * step_ns * 3) return 0;
  for (std::size_t period = 2; period <= longest && 3 * period <= waits_ns.size(); ++period) {
    for (std::size_t phase = 0; phase < period; ++phase) {
      double sum = 0;
      std::size_t met = 0, stalled = 0;
      for (std::size_t i = phase; i < waits_ns.size(); i += period, ++met) {
        const auto wait = static_cast<double>(waits_ns[i]);
        sum += wait;
        if (wait > least * step_ns) ++stalled;
      }
      if (sum >= one_in_p * total && stalled >= 3 && stalled + 1 >= met)
        return static_cast<int>(period);
    }
  }
  return 0;
}

namespace {

// In the order in which a sample goes through them; transforms come before "pixels".
int rank_of(const std::string& stage) {
  constexpr std::array<std::string_view, 3> first{"read", "decode", "resize"};
  const auto at = std::find(first.begin(), first.end(), stage);
  if (at != first.end()) return static_cast<int>(at - first.begin());
  return stage == "pixels" ? 11 : stage == "copy" ? 12 : 10;
}

struct Collected {
  std::vector<std::string> stages;                               // as first met
  std::vector<WorkerRow> rows;                                   // of threads that loaded
  std::vector<std::pair<std::uint64_t, std::uint64_t>> samples;  // ticket, service time

  std::size_t stage(const std::string& name) {
    const auto at = std::find(stages.begin(), stages.end(), name);
    if (at != stages.end()) return static_cast<std::size_t>(at - stages.begin());
    stages.push_back(name);
    return stages.size() - 1;
  }
};

void add_stage(Collected& all, WorkerRow& row, const std::string& name, std::uint64_t ns) {
  const std::size_t stage = all.stage(name);
  if (row.stage_ns.size() <= stage) row.stage_ns.resize(stage + 1);
  row.stage_ns[stage] += ns;
}

// By thread, then by begin, a sample before its first stage even when that is all of it.
std::vector<Span> loader_spans(const Session& session) {
  std::vector<Span> spans;
  for (const Span& span : session.spans) {
    const Kind kind = session.kind(span);
    if (kind != Kind::sample && kind != Kind::stage && kind != Kind::idle) continue;
    // The loader of an evaluation may make its first batches meanwhile.
    if (!session.threads[span.thread].name.starts_with("test loader")) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(), [&](const Span& a, const Span& b) {
    const bool a_stage = session.kind(a) != Kind::sample, b_stage = session.kind(b) != Kind::sample;
    return std::tie(a.thread, a.begin_ns, a_stage) < std::tie(b.thread, b.begin_ns, b_stage);
  });
  return spans;
}

std::uint64_t within_windows(const View& view, const Span& span) {
  std::uint64_t ns = 0;
  for (const Window& window : view.windows) {
    const std::uint64_t begin = std::max(span.begin_ns, window.begin_ns);
    ns += std::max(std::min(span.end_ns, window.end_ns), begin) - begin;
  }
  return ns;
}

Collected collect(const View& source) {
  const Session& session = source.session;
  Collected all;
  std::map<std::uint32_t, std::size_t> row_of_thread;
  const std::vector<Span> spans = loader_spans(session);
  const Span* sample = nullptr;
  for (const Span& span : spans) {
    const Kind kind = session.kind(span);
    const auto [at, is_new] = row_of_thread.try_emplace(span.thread, all.rows.size());
    if (is_new) {
      all.rows.push_back({.thread = session.threads[span.thread].name});
      sample = nullptr;
    }
    WorkerRow& row = all.rows[at->second];
    const std::uint64_t ns = span.end_ns - span.begin_ns;
    if (kind == Kind::sample) {
      sample = &span;
      if (!source.in_windows(span.begin_ns)) continue;
      ++row.samples;
      row.busy += static_cast<double>(ns);
      all.samples.emplace_back(span.arg, ns);
    } else if (kind == Kind::stage) {
      const bool is_within = sample != nullptr && span.end_ns <= sample->end_ns;
      if (!source.in_windows(is_within ? sample->begin_ns : span.begin_ns)) continue;
      add_stage(all, row, session.name(span.name), ns);
      if (!is_within) row.busy += static_cast<double>(ns);
    } else {
      row.idle_ns += within_windows(source, span);
    }
  }
  return all;
}

std::vector<std::size_t> ranked(const std::vector<std::string>& stages) {
  std::vector<std::size_t> order(stages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank_of(stages[a]) < rank_of(stages[b]);
  });
  return order;
}

// In the order of tickets from the first whole batch on.
void take_samples(Collected& all, LoaderView& view) {
  std::sort(all.samples.begin(), all.samples.end());
  const auto batch = static_cast<std::uint64_t>(view.batch);
  auto from = std::find_if(all.samples.begin(), all.samples.end(),
                           [&](const auto& sample) { return sample.first % batch == 0; });
  if (all.samples.end() - from < view.batch) from = all.samples.begin();
  for (; from != all.samples.end(); ++from) view.service_ns.push_back(from->second);
}

void take_spans(const View& source, LoaderView& view) {
  Collected all = collect(source);
  if (all.samples.empty() || view.batch < 1) return;
  view.has_spans = true;
  const double windows = static_cast<double>(source.windows_ns());
  const double batches = static_cast<double>(all.samples.size()) / static_cast<double>(view.batch);
  double busy = 0;
  int workers = 0;
  const std::vector<std::size_t> order = ranked(all.stages);
  view.stage_ns.assign(order.size(), 0.0);
  for (const std::size_t stage : order) view.stages.push_back(all.stages[stage]);
  for (WorkerRow& row : all.rows) {
    row.stage_ns.resize(order.size());
    std::vector<std::uint64_t> in_order;
    for (std::size_t i = 0; i < order.size(); ++i) {
      in_order.push_back(row.stage_ns[order[i]]);
      view.stage_ns[i] += static_cast<double>(in_order.back()) / batches;
    }
    row.stage_ns = in_order;
    busy += row.busy;
    workers += row.samples > 0 ? 1 : 0;
    if (windows > 0) row.busy /= windows;
    view.by_worker.push_back(row);
  }
  view.work_ns = busy / batches;
  view.workers = workers;
  take_samples(all, view);
}

// The sums that a loader keeps at every level: a mean over the run.
void take_counters(const Session& session, LoaderView& view) {
  const double batches = fields::number(session.loader, "batches");
  if (batches < 1) return;
  Collected all;
  std::vector<double> sums;
  for (const auto& [name, value] : fields::child(session.loader, "stages_ns").items()) {
    if (name == "wait" || !value.is_number() || value.get<double>() < 0) continue;
    all.stage(name);
    sums.push_back(value.get<double>());
  }
  for (const std::size_t stage : ranked(all.stages)) {
    view.stages.push_back(all.stages[stage]);
    view.stage_ns.push_back(sums[stage] / batches);
    view.work_ns += view.stage_ns.back();
  }
}

// Workers record the CPU time of each claim.
double recorded_cpu_ns(const View& source) {
  const Session& session = source.session;
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::counter && session.name(span.name) == "worker cpu ns" &&
        !session.threads[span.thread].name.starts_with("test loader") &&
        source.in_windows(span.begin_ns))
      sum += static_cast<double>(span.arg);
  return sum;
}

void take_cpu(const View& source, LoaderView& view) {
  const Session& session = source.session;
  double work = 0, cpu = recorded_cpu_ns(source);
  if (view.has_spans && cpu > 0) {
    for (const WorkerRow& row : view.by_worker)
      work += row.busy * static_cast<double>(source.windows_ns());
  } else {
    cpu = fields::number(session.loader, "cpu_ns");
    for (const auto& [name, value] : fields::child(session.loader, "stages_ns").items())
      if (name != "wait" && value.is_number()) work += value.get<double>();
  }
  if (work > 0) view.cpu_share = std::clamp(cpu / work, 0.0, 1.0);
}

void take_queue(const View& source, LoaderView& view) {
  const Session& session = source.session;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::counter && session.name(span.name) == "batches ready" &&
        source.in_windows(span.begin_ns))
      view.queue.emplace_back(span.begin_ns, span.arg);
  std::sort(view.queue.begin(), view.queue.end());
  view.queue_depth = fields::number(session.loader, "mean_ready");
  if (view.queue.empty()) return;
  double sum = 0;
  for (const auto& [at, value] : view.queue) sum += static_cast<double>(value);
  view.queue_depth = sum / static_cast<double>(view.queue.size());
}

void take_steps(const View& source, LoaderView& view) {
  const Session& session = source.session;
  const std::vector<std::size_t>& counted = source.counted;
  for (const std::size_t i : counted) {
    const Step& step = session.steps[i];
    const std::uint64_t all = step.end_ns - step.begin_ns, wait = std::min(step.data_ns, all);
    view.waits_ns.push_back(wait);
    view.wait_ns += static_cast<double>(wait) / static_cast<double>(counted.size());
    view.step_ns += static_cast<double>(all - wait) / static_cast<double>(counted.size());
  }
  view.stall_period = stall_period(view.waits_ns, view.step_ns);
}

}  // namespace

LoaderView loader_view(const View& source) {
  const Session& session = source.session;
  LoaderView view;
  const Json& loader = session.loader;
  const Json& options = source.options;
  const auto clamped = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, 0, 1 << 20));
  };
  view.batch =
      std::max<std::int64_t>(0, fields::whole(loader, "batch", fields::whole(options, "batch")));
  if (view.batch == 0 && !session.steps.empty())
    view.batch = std::max<std::int64_t>(0, session.steps.front().samples);
  view.prefetch = clamped(fields::whole(loader, "prefetch", fields::whole(options, "prefetch")));
  view.cores = usable_cores(session);
  take_spans(source, view);
  if (!view.has_spans) {
    take_counters(session, view);
    view.workers = clamped(fields::whole(
        loader, "active", fields::whole(loader, "workers", fields::whole(options, "workers"))));
  }
  take_queue(source, view);
  take_steps(source, view);
  take_cpu(source, view);
  return view;
}

namespace {

std::string_view bound_text(Bound bound) {
  return bound == Bound::cpu ? ", CPU-bound" : bound == Bound::io ? ", I/O-bound" : "";
}

// Both parts in the unit of the whole: "12.3 of 41.0 ms".
std::string part_text(double part, double whole) {
  const bool in_ms = whole >= 1e6;
  const double unit = in_ms ? 1e6 : 1e3;
  return fmt::format("{:.1f} of {:.1f} {}", part / unit, whole / unit, in_ms ? "ms" : "us");
}

std::string workers_text(const LoaderView& view, const Stall& stall) {
  const std::string now = counted(view.workers, "worker");
  if (stall.workers_needed > view.workers)
    return fmt::format("; {} would hide it (step {}, {:.2f}x)",
                       counted(stall.workers_needed, "worker"),
                       quantity(stall.step_with_them_ns, Unit::ns), stall.speedup);
  const std::string on = view.cores > 0 ? " on " + counted(view.cores, "core") : "";
  if (stall.best_workers > view.workers && stall.speedup > 1.02)
    return fmt::format(
        "; no number of workers hides it{}, but {} would shorten it (step {}, {:.2f}x)", on,
        counted(stall.best_workers, "worker"), quantity(stall.step_with_best_ns, Unit::ns),
        stall.speedup);
  return fmt::format("; more than {} would not help{}", now, on);
}

std::string rest_text(const LoaderView& view, const Stall& stall) {
  std::string text;
  if (view.stall_period > 0)
    text += fmt::format("; all waiting is in one step of {}", view.stall_period);
  if (stall.prefetch_needed > 0)
    text += fmt::format("; a prefetch of {} hides it", stall.prefetch_needed);
  if (stall.stage_speedup_needed > 1)
    text += fmt::format("; staying at {}, {} must get {:.2f}x faster",
                        counted(view.workers, "worker"), stall.stage, stall.stage_speedup_needed);
  if (std::abs(stall.predicted_wait_ns - stall.wait_ns) > 0.2 * stall.wait_ns)
    text +=
        fmt::format("; model and measurement disagree ({} and {}): treat the prediction with care",
                    quantity(stall.predicted_wait_ns, Unit::ns), quantity(stall.wait_ns, Unit::ns));
  return text;
}

}  // namespace

std::string stall_text(const LoaderView& view, const Stall& stall) {
  if (stall.step_ns <= 0) return "too few steps for loader statistics";
  std::string text = fmt::format("steps {}-{}: waited {} ({}) for the loader", stall.first_step,
                                 stall.last_step, part_text(stall.wait_ns, stall.step_ns),
                                 quantity(stall.wait_ns / stall.step_ns, Unit::share));
  if (view.work_ns <= 0) return text + "; its workers were not recorded.";
  if (!stall.stage.empty())
    text += fmt::format("; {} is {} of {} worker time per batch{}", stall.stage,
                        quantity(stall.stage_share, Unit::share), quantity(view.work_ns, Unit::ns),
                        bound_text(stall.bound));
  if (!stall.is_stalled) return text + "; loading overlaps with computing.";
  return text + workers_text(view, stall) + rest_text(view, stall) + ".";
}

namespace {

constexpr double least_share = 0.02;  // of a step: less waiting is no stall
constexpr int longest_curve = 64;

double busy_workers(const LoaderView& view) {
  const double step = view.step_ns + view.wait_ns;
  return step > 0 ? std::min<double>(view.workers, view.work_ns / step) : 0;
}

// Of the workers' work, the share in which they ran or were ready to: the rest they slept, as for a
// disk. A worker that waits for a core has little CPU time, too.
double ready_share(const LoaderView& view, const Contention& lost) {
  double busy = 0;
  for (const WorkerRow& row : view.by_worker) busy += row.samples > 0 ? row.busy : 0;
  if (busy <= 0 || view.workers < 1) return view.cpu_share;
  return view.cpu_share + lost.worker_delay_ns() * 1e-9 * view.workers / busy;
}

// What limits workers: the CPU when the time that they ran or waited for a core is near their wall
// time. Without that figure the process's CPU time bounds it from above; where the host computes,
// kernels are part of that. Programs that have the cores lower both: then only a disk that is busy
// tells.
Bound find_bound(const LoaderView& view, const Stall& stall, const View& source) {
  if (view.work_ns <= 0) return Bound::unknown;
  const Contention lost = contention(source);
  const double ready = ready_share(view, lost);
  if (ready >= 0.8) return Bound::cpu;
  const bool contended =
      lost.others_share.value_or(0) >= 0.25 || lost.throttled_share.value_or(0) > 0;
  if (view.cpu_share > 0 && ready <= 0.5 && (lost.has_delays || !contended)) return Bound::io;
  const MetricLevel process = metric_level(source, "process cpu %");
  const MetricLevel disk = metric_level(source, "disk busy %");
  const bool reads = stall.stage == "read";
  if (reads && disk.count > 0 && disk.mean >= 50) return Bound::io;
  if (!contended && process.count > 0 && process.mean / 100 < 0.5 * busy_workers(view))
    return Bound::io;
  if (!reads && !stall.stage.empty()) return Bound::cpu;
  // Reading that the disk has no part in copies from the page cache.
  return disk.count > 0 && disk.mean < 10 ? Bound::cpu : Bound::unknown;
}

bool hides(const LoaderModel& model, const Predicted& predicted) {
  return predicted.wait_ns < least_share * model.free_step_ns() &&
         predicted.step_ns <= (1 + least_share) * model.free_step_ns();
}

void try_workers(const LoaderModel& model, Stall& stall) {
  const int most = std::min(model.most_workers(), longest_curve);
  std::vector<double> steps;
  for (int k = 1; k <= most; ++k) {
    const Predicted predicted = model.predict({.workers = k});
    stall.wait_by_workers_ns.push_back(predicted.wait_ns);
    steps.push_back(predicted.step_ns);
    if (stall.workers_needed == 0 && hides(model, predicted)) stall.workers_needed = k;
  }
  const double shortest = *std::min_element(steps.begin(), steps.end());
  const auto best = std::find_if(steps.begin(), steps.end(),
                                 [&](double step) { return step <= 1.01 * shortest; });
  stall.best_workers = static_cast<int>(best - steps.begin()) + 1;
  stall.step_with_best_ns = *best;
  stall.step_with_them_ns =
      stall.workers_needed > 0 ? steps[static_cast<std::size_t>(stall.workers_needed - 1)] : *best;
  if (stall.step_with_them_ns > 0) stall.speedup = stall.step_ns / stall.step_with_them_ns;
}

void try_prefetch(const LoaderModel& model, const LoaderView& view, Stall& stall) {
  constexpr std::array<int, 8> values{2, 3, 4, 6, 8, 16, 32, 64};
  for (const int prefetch : values) {
    const Predicted predicted = model.predict({.prefetch = prefetch});
    stall.wait_by_prefetch_ns.emplace_back(prefetch, predicted.wait_ns);
    if (stall.prefetch_needed > 0 || prefetch <= view.prefetch) continue;
    if (predicted.wait_ns >= least_share * model.free_step_ns()) continue;
    stall.prefetch_needed = prefetch;
    stall.step_with_prefetch_ns = predicted.step_ns;
  }
}

// From the means first, which the replay may find too little: then twice the way to none at all.
void try_stage(const LoaderModel& model, Stall& stall) {
  const double part = stall.stage_share;
  if (part <= 0) return;
  const double surplus = 1 - model.work_hidden() / model.work_ns();  // of the work
  double left = std::min(1.0, 1 - surplus / part);                   // of the stage
  const auto wait = [&](double of_stage) {
    return model.predict({.work_scale = 1 - part * (1 - of_stage)}).wait_ns;
  };
  for (int tries = 0; left > 0.01 && tries < 12; ++tries, left *= 0.8) {
    if (wait(left) >= least_share * model.free_step_ns()) continue;
    stall.stage_speedup_needed = 1 / left;
    return;
  }
}

void find_stage(const LoaderView& view, Stall& stall) {
  const auto longest = std::max_element(view.stage_ns.begin(), view.stage_ns.end());
  if (longest == view.stage_ns.end() || *longest <= 0 || view.work_ns <= 0) return;
  stall.stage = view.stages[static_cast<std::size_t>(longest - view.stage_ns.begin())];
  stall.stage_share = std::min(1.0, *longest / view.work_ns);
}

}  // namespace

Stall diagnose(const LoaderView& view, const View& source) {
  Stall stall;
  const Session& session = source.session;
  const std::vector<std::size_t>& counted = source.counted;
  if (!counted.empty()) {
    stall.first_step = session.steps[counted.front()].step;
    stall.last_step = session.steps[counted.back()].step;
  }
  // A run's first step always waits for the first batch: alone it says nothing about the loader.
  if (source.recorded.size() == 0 && session.steps.size() < 2) {
    stall.text = stall_text(view, stall);
    return stall;
  }
  stall.wait_ns = view.wait_ns;
  stall.step_ns = view.step_ns + view.wait_ns;
  stall.is_stalled = stall.step_ns > 0 && stall.wait_ns >= least_share * stall.step_ns;
  find_stage(view, stall);
  stall.bound = find_bound(view, stall, source);
  if (view.work_ns > 0 && stall.step_ns > 0) {
    const LoaderModel model(view, source, stall.bound == Bound::io);
    stall.predicted_wait_ns = model.predict({}).wait_ns;
    try_workers(model, stall);
    try_prefetch(model, view, stall);
    if (stall.is_stalled) try_stage(model, stall);
  }
  stall.text = stall_text(view, stall);
  return stall;
}

}  // namespace warpstep::profiler
