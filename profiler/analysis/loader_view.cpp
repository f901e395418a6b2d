// What the loader did, from its spans or, without them, from its counters.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "profiler/analysis/counted.h"
#include "profiler/analysis/fields.h"
#include "profiler/analysis/loader_period.h"
#include "profiler/analysis/loading.h"

namespace warpstep::profiler {
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

std::uint64_t within_windows(const Session& session, const Span& span) {
  std::uint64_t ns = 0;
  for (const Window& window : session.windows) {
    const std::uint64_t begin = std::max(span.begin_ns, window.begin_ns);
    if (window.complete != 0) ns += std::max(std::min(span.end_ns, window.end_ns), begin) - begin;
  }
  return ns;
}

Collected collect(const Session& session) {
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
      if (!advice::in_windows(session, span.begin_ns)) continue;
      ++row.samples;
      row.busy += static_cast<double>(ns);
      all.samples.emplace_back(span.arg, ns);
    } else if (kind == Kind::stage) {
      const bool is_within = sample != nullptr && span.end_ns <= sample->end_ns;
      if (!advice::in_windows(session, is_within ? sample->begin_ns : span.begin_ns)) continue;
      add_stage(all, row, session.name(span.name), ns);
      if (!is_within) row.busy += static_cast<double>(ns);
    } else {
      row.idle_ns += within_windows(session, span);
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

void take_spans(const Session& session, LoaderView& view) {
  Collected all = collect(session);
  if (all.samples.empty() || view.batch < 1) return;
  view.has_spans = true;
  const double windows = static_cast<double>(advice::windows_ns(session));
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

// Workers tell what each claim took of a core.
double recorded_cpu_ns(const Session& session) {
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::counter && session.name(span.name) == "worker cpu ns" &&
        !session.threads[span.thread].name.starts_with("test loader") &&
        advice::in_windows(session, span.begin_ns))
      sum += static_cast<double>(span.arg);
  return sum;
}

void take_cpu(const Session& session, LoaderView& view) {
  double work = 0, cpu = recorded_cpu_ns(session);
  if (view.has_spans && cpu > 0) {
    for (const WorkerRow& row : view.by_worker)
      work += row.busy * static_cast<double>(advice::windows_ns(session));
  } else {
    cpu = fields::number(session.loader, "cpu_ns");
    for (const auto& [name, value] : fields::child(session.loader, "stages_ns").items())
      if (name != "wait" && value.is_number()) work += value.get<double>();
  }
  if (work > 0) view.cpu_share = std::clamp(cpu / work, 0.0, 1.0);
}

void take_queue(const Session& session, LoaderView& view) {
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::counter && session.name(span.name) == "batches ready" &&
        advice::in_windows(session, span.begin_ns))
      view.queue.emplace_back(span.begin_ns, span.arg);
  std::sort(view.queue.begin(), view.queue.end());
  view.queue_depth = fields::number(session.loader, "mean_ready");
  if (view.queue.empty()) return;
  double sum = 0;
  for (const auto& [at, value] : view.queue) sum += static_cast<double>(value);
  view.queue_depth = sum / static_cast<double>(view.queue.size());
}

void take_steps(const Session& session, LoaderView& view) {
  const std::vector<std::size_t> counted = advice::counted_steps(session);
  for (const std::size_t i : counted) {
    const Step& step = session.steps[i];
    const std::uint64_t all = step.end_ns - step.begin_ns, wait = std::min(step.data_ns, all);
    view.waits_ns.push_back(wait);
    view.wait_ns += static_cast<double>(wait) / static_cast<double>(counted.size());
    view.step_ns += static_cast<double>(all - wait) / static_cast<double>(counted.size());
  }
  view.stall_period = advice::stall_period(view.waits_ns, view.step_ns);
}

}  // namespace

LoaderView loader_view(const Session& session) {
  LoaderView view;
  const Json& told = session.loader;
  const Json& options = fields::child(session.stamp, "options");
  const auto clamped = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, 0, 1 << 20));
  };
  view.batch =
      std::max<std::int64_t>(0, fields::whole(told, "batch", fields::whole(options, "batch")));
  if (view.batch == 0 && !session.steps.empty())
    view.batch = std::max<std::int64_t>(0, session.steps.front().samples);
  view.prefetch = clamped(fields::whole(told, "prefetch", fields::whole(options, "prefetch")));
  view.cores = advice::cores(session);
  take_spans(session, view);
  if (!view.has_spans) {
    take_counters(session, view);
    view.workers = clamped(fields::whole(
        told, "active", fields::whole(told, "workers", fields::whole(options, "workers"))));
  }
  take_queue(session, view);
  take_steps(session, view);
  take_cpu(session, view);
  return view;
}

}  // namespace warpstep::profiler
