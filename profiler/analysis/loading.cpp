// What the loader did, from its spans or, without them, from its counters; why the trainer waits
// for data, and the cheapest setting without waiting.

#include "profiler/analysis/loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "engine/core/text.h"
#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t longest = 128;
constexpr double one_in_p = 0.9;  // of all waiting
constexpr double least = 0.02;    // of a step: what counts as a stall
constexpr double most_of = 0.7;   // of a sum: what few parts may have

}  // namespace

bool is_loose(const View& source) {
  const auto setting = [&](const char* key, const char* otherwise) {
    return fields::text(source.session.loader, key, fields::text(source.options, key, otherwise));
  };
  const std::string encoding = setting("encoding", "");
  return (encoding == "png" || encoding == "jpeg" || encoding == "mixed") &&
         setting("format", "folder").ends_with("folder");
}

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

// By the sums that a loader keeps: CPU time over time of the workers' work; 0: not known.
double counted_cpu_share(const Session& session) {
  double work = 0;
  for (const auto& [name, value] : fields::child(session.loader, "stages_ns").items())
    if (name != "wait" && value.is_number()) work += value.get<double>();
  return work > 0 ? std::clamp(fields::number(session.loader, "cpu_ns") / work, 0.0, 1.0) : 0;
}

// A sample as its spans have it.
struct Made {
  SampleTime time;
  std::uint64_t begin_ns = 0, end_ns = 0;
  ReadTime read;           // all of the sample's reads; none: no time
  double paged_ns = 0;     // in other stages that read a mapped file's pages
  double off_ns = 0;       // not on a core
  double off_read_ns = 0;  // of that, in what reads
  double delay_ns = 0;     // of off_ns: waiting for a core, where the loader recorded it

  double wall_ns() const { return static_cast<double>(end_ns - begin_ns); }
  double read_ns() const { return static_cast<double>(read.end_ns - read.begin_ns); }
};

struct Collected {
  std::vector<std::string> stages;  // as first met
  std::vector<WorkerRow> rows;      // of threads that loaded
  std::vector<Made> made;
  bool knows_cpu = true;      // of each sample
  bool knows_delays = false;  // of those that were off a core for long

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

bool is_counter_of_work(const Session& session, const Span& span) {
  if (session.kind(span) != Kind::counter) return false;
  const std::string& name = session.name(span.name);
  return name == "worker cpu ns" || name == "worker delay ns";
}

// By thread, then by begin, a sample before its first stage even when that is all of it.
std::vector<Span> loader_spans(const Session& session) {
  std::vector<Span> spans;
  for (const Span& span : session.spans) {
    const Kind kind = session.kind(span);
    if (kind != Kind::sample && kind != Kind::stage && kind != Kind::idle &&
        !is_counter_of_work(session, span))
      continue;
    // The loader of an evaluation may make its first batches meanwhile.
    if (!session.threads[span.thread].name.starts_with("test loader")) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(), [&](const Span& a, const Span& b) {
    const bool a_stage = session.kind(a) != Kind::sample, b_stage = session.kind(b) != Kind::sample;
    return std::tie(a.thread, a.begin_ns, a_stage) < std::tie(b.thread, b.begin_ns, b_stage);
  });
  return spans;
}

// Gives the CPU time of a worker's claim to its samples: what it was off a core first to their
// reads, the rest to all of their time.
void share_cpu(std::span<Made> claim, double cpu_ns) {
  double wall = 0, reading = 0;
  for (const Made& made : claim) {
    wall += made.wall_ns();
    reading += made.read_ns();
  }
  if (wall <= 0) return;
  const double off = std::max(0.0, wall - cpu_ns);
  const double in_reads = std::min(off, reading), elsewhere = off - in_reads;
  for (Made& made : claim) {
    const double per_ns = wall > reading ? elsewhere / (wall - reading) : 0,
                 read_ns = reading > 0 ? in_reads * made.read_ns() / reading : 0;
    made.off_read_ns = read_ns + per_ns * made.paged_ns;
    made.off_ns = read_ns + per_ns * (made.wall_ns() - made.read_ns());
  }
}

// The same for what the claim waited for a core: to all of its time off one.
void share_delay(std::span<Made> claim, double delay_ns) {
  double off = 0;
  for (const Made& made : claim) off += made.off_ns;
  const double share = off > 0 ? std::min(1.0, delay_ns / off) : 0;
  for (Made& made : claim) made.delay_ns = share * made.off_ns;
}

// Whether samples are parts of mapped files: their pages are read where they are first used, which
// no "read" shows.
bool maps_files(const View& source) {
  return !is_loose(source) && fields::text(source.options, "data_io", "mmap") == "mmap";
}

// The spans of one thread after the other.
class Collector {
 public:
  Collector(const View& source, Collected& all)
      : source_(source), all_(all), maps_files_(maps_files(source)) {}

  void add(const Span& span) {
    const Session& session = source_.session;
    const auto [at, is_new] = row_of_thread_.try_emplace(span.thread, all_.rows.size());
    if (is_new) {
      all_.rows.push_back({.thread = session.threads[span.thread].name});
      sample_ = nullptr;
      claim_ = next_claim_ = all_.made.size();
    }
    row_ = at->second;
    const Kind kind = session.kind(span);
    if (kind == Kind::sample) add_sample(span);
    if (kind == Kind::stage) add_stage_of(span);
    if (kind == Kind::idle)
      all_.rows[row_].idle_ns += source_.window_times.within(span.begin_ns, span.end_ns);
    if (kind == Kind::counter) add_counter(span);
  }

  std::size_t counted() const { return counted_; }  // samples whose CPU time is known

 private:
  void add_sample(const Span& span) {
    sample_ = &span;
    if (!source_.in_windows(span.begin_ns)) return;
    WorkerRow& row = all_.rows[row_];
    ++row.samples;
    row.busy += static_cast<double>(span.end_ns - span.begin_ns);
    all_.made.push_back({.time = {.ticket = span.arg, .worker = row_},
                         .begin_ns = span.begin_ns,
                         .end_ns = span.end_ns,
                         .read = {.begin_ns = span.begin_ns, .end_ns = span.begin_ns}});
  }

  void add_stage_of(const Span& span) {
    const std::uint64_t ns = span.end_ns - span.begin_ns;
    const bool is_within = sample_ != nullptr && span.end_ns <= sample_->end_ns;
    if (!source_.in_windows(is_within ? sample_->begin_ns : span.begin_ns)) return;
    const std::string& name = source_.session.name(span.name);
    add_stage(all_, all_.rows[row_], name, ns);
    if (!is_within) {
      all_.rows[row_].busy += static_cast<double>(ns);
    } else if (name == "read" && !all_.made.empty()) {
      ReadTime& read = all_.made.back().read;
      const std::uint64_t before_ns = read.end_ns - read.begin_ns;
      if (before_ns == 0) read.begin_ns = span.begin_ns;
      read.end_ns = read.begin_ns + before_ns + ns;
      read.bytes += static_cast<double>(span.arg);
    } else if (maps_files_ && (name == "decode" || name == "copy") && !all_.made.empty()) {
      all_.made.back().paged_ns += static_cast<double>(ns);
    }
  }

  void add_counter(const Span& span) {
    const auto ns = static_cast<double>(span.arg);
    if (source_.session.name(span.name) == "worker delay ns") {
      all_.knows_delays = true;
      share_delay(std::span(all_.made).subspan(claim_, next_claim_ - claim_), ns);
      return;
    }
    claim_ = next_claim_;
    next_claim_ = all_.made.size();
    share_cpu(std::span(all_.made).subspan(claim_), ns);
    counted_ += next_claim_ - claim_;
  }

  const View& source_;
  Collected& all_;
  bool maps_files_;
  std::map<std::uint32_t, std::size_t> row_of_thread_;
  std::size_t row_ = 0, counted_ = 0;
  std::size_t claim_ = 0, next_claim_ = 0;  // the last that ended begins, and the one after it
  const Span* sample_ = nullptr;
};

Collected collect(const View& source) {
  Collected all;
  Collector collector(source, all);
  const std::vector<Span> spans = loader_spans(source.session);
  for (const Span& span : spans) collector.add(span);
  all.knows_cpu = collector.counted() > 0 && 10 * collector.counted() >= 9 * all.made.size();
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

// Of the time that a worker's samples were off a core, the share in which it waited for one.
double delayed_share(const Collected& all, const Contention& contention, std::size_t worker) {
  double off = 0;
  for (const Made& made : all.made)
    if (made.time.worker == worker) off += made.off_ns;
  const auto thread =
      std::ranges::find(contention.workers, all.rows[worker].thread, &ThreadTime::thread);
  if (off <= 0 || thread == contention.workers.end()) return 0;
  return std::clamp(thread->delay_ns * contention.seconds / off, 0.0, 1.0);
}

// Of reads in a session that does not have the CPU time of samples.
double assumed_off_share(const View& source) {
  const double cpu = counted_cpu_share(source.session);
  if (cpu > 0) return 1 - cpu;
  const MetricLevel disk = metric_level(source, "disk busy %");
  return disk.count > 0 && disk.mean >= 50 ? 1 : 0;
}

// Whether files are read about as fast as the control group lets its processes read from some
// device: which one holds them is not recorded. A limit may be passed by what the kernel merges.
bool reads_at_limit(const Session& session, const SourceFit& fit) {
  constexpr double least = 0.5, most = 2, block_bytes = 4096;
  const auto is_at = [&](double rate, double limit) {
    return limit > 0 && rate >= least * limit && rate <= most * limit;
  };
  const double bytes_per_s = std::max(fit.bytes_per_s, block_bytes * fit.reads_per_s);
  const Json& limits = fields::child(fields::child(session.stamp, "cgroup"), "io_limits");
  return limits.is_array() && std::ranges::any_of(limits, [&](const Json& limit) {
           return is_at(fit.reads_per_s, fields::number(limit, "reads_per_s")) ||
                  is_at(bytes_per_s, fields::number(limit, "read_bytes_per_s"));
         });
}

// The parts of each sample's time, and the reads.
void take_parts(const View& source, Collected& all, LoaderView& view) {
  const Contention contention = profiler::contention(source);
  std::vector<double> delayed;
  for (std::size_t worker = 0; worker < all.rows.size(); ++worker)
    delayed.push_back(contention.has_delays ? delayed_share(all, contention, worker) : -1);
  const double assumed_off = assumed_off_share(source);
  std::vector<ReadTime> reads;
  for (Made& made : all.made) {
    SampleTime& time = made.time;
    // Without the system's account of run queues: a thread that is off its core while it reads is
    // blocked, else it waits for a core.
    if (!all.knows_cpu)
      made.off_ns = made.off_read_ns = std::min(made.read_ns(), made.wall_ns() * assumed_off);
    const double share =
        all.knows_delays && made.off_ns > 0 ? made.delay_ns / made.off_ns : delayed[time.worker];
    time.blocked_ns = made.off_read_ns * (share >= 0 ? 1 - share : 1);
    time.asleep_ns = share >= 0 ? (made.off_ns - made.off_read_ns) * (1 - share) : 0;
    time.delay_ns = made.off_ns - time.blocked_ns - time.asleep_ns;
    time.cpu_ns = made.wall_ns() - made.off_ns;
    time.bytes = made.read.bytes;
    made.read.blocked_ns = time.blocked_ns;
    reads.push_back(made.read);
  }
  count_readers(reads);
  view.source = fit_source(reads);
  view.source.is_limited = reads_at_limit(source.session, view.source);
  const double batches = static_cast<double>(all.made.size()) / static_cast<double>(view.batch);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    SampleTime& time = all.made[i].time;
    time.readers = reads[i].readers;
    view.cpu_ns += time.cpu_ns / batches;
    view.blocked_ns += time.blocked_ns / batches;
    view.asleep_ns += time.asleep_ns / batches;
    view.delay_ns += time.delay_ns / batches;
  }
}

// In the order of tickets from the first whole batch on.
void take_samples(Collected& all, LoaderView& view) {
  std::ranges::stable_sort(all.made, {}, [](const Made& made) { return made.time.ticket; });
  const auto batch = static_cast<std::uint64_t>(view.batch);
  auto from = std::find_if(all.made.begin(), all.made.end(),
                           [&](const Made& made) { return made.time.ticket % batch == 0; });
  if (all.made.end() - from < view.batch) from = all.made.begin();
  for (; from != all.made.end(); ++from) {
    view.service_ns.push_back(from->end_ns - from->begin_ns);
    view.samples.push_back(from->time);
  }
}

// Of each worker with enough samples to say: so many of its samples' times are below this one, of
// 1, as a multiple of the fastest worker's; else 0.
std::vector<double> slowness_at(const std::vector<std::vector<double>>& times, double share) {
  constexpr std::size_t enough = 8;
  std::vector<double> found;
  double fastest = 0;
  for (std::vector<double> own : times) {
    const auto at =
        own.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(own.size()));
    if (own.size() >= enough) std::ranges::nth_element(own, at);
    found.push_back(own.size() < enough ? 0 : *at);
    if (found.back() > 0 && (fastest == 0 || found.back() < fastest)) fastest = found.back();
  }
  for (double& time : found) time = fastest > 0 ? time / fastest : 0;
  return found;
}

// A slow worker's fast samples are slow, too. Those of one that others keep from a lock take as
// long as theirs where it gets it at once, though its median does not.
void take_slowness(const Collected& all, LoaderView& view) {
  std::vector<std::vector<double>> times(all.rows.size());
  for (const Made& made : all.made) times[made.time.worker].push_back(made.wall_ns());
  const std::vector<double> usual = slowness_at(times, 0.5), fast = slowness_at(times, 0.2);
  for (std::size_t worker = 0; worker < times.size(); ++worker)
    if (usual[worker] > 0) view.by_worker[worker].slowness = std::min(usual[worker], fast[worker]);
}

// Of the time of samples beyond their median's, without what they waited for a core: others took
// it.
Concentration tail_of(const std::vector<SampleTime>& samples) {
  std::vector<double> beyond;
  for (const SampleTime& sample : samples)
    beyond.push_back(sample.cpu_ns + sample.blocked_ns + sample.asleep_ns);
  const double usual = median(beyond);
  double sum = 0, all = 0;
  for (double& ns : beyond) {
    all += ns;
    ns = std::max(0.0, ns - usual);
    sum += ns;
  }
  if (all <= 0) return {};
  Concentration tail = concentration(std::move(beyond));
  tail.beyond_share = sum / all;
  return tail;
}

void take_spans(const View& source, LoaderView& view) {
  Collected all = collect(source);
  if (all.made.empty() || view.batch < 1) return;
  view.has_spans = true;
  view.knows_cpu = all.knows_cpu;
  const double windows = static_cast<double>(source.windows_ns());
  const double batches = static_cast<double>(all.made.size()) / static_cast<double>(view.batch);
  double busy = 0;
  int workers = 0;
  const std::vector<std::size_t> order = ranked(all.stages);
  view.stage_ns.assign(order.size(), 0.0);
  for (const std::size_t stage : order) view.stages.push_back(all.stages[stage]);
  for (WorkerRow row : all.rows) {
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
  take_slowness(all, view);
  take_parts(source, all, view);
  take_samples(all, view);
  view.service = tail_of(view.samples);
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

void take_cpu(const View& source, LoaderView& view) {
  if (view.knows_cpu) {
    view.cpu_share = std::clamp(view.cpu_ns / view.work_ns, 0.0, 1.0);
    return;
  }
  view.cpu_share = counted_cpu_share(source.session);
  if (view.has_spans || view.cpu_share <= 0) return;
  const auto read = std::ranges::find(view.stages, "read");
  if (read == view.stages.end()) return;
  view.blocked_ns = std::min(view.stage_ns[static_cast<std::size_t>(read - view.stages.begin())],
                             (1 - view.cpu_share) * view.work_ns);
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

std::uint64_t wait_of(const View& source, const Breakdown* breakdown, std::size_t step) {
  const Session& session = source.session;
  const bool is_known = breakdown != nullptr && !breakdown->tb_compatible &&
                        step < breakdown->steps.size() && breakdown->steps[step].from_spans;
  if (session.computes_on_host() || !is_known) return session.steps[step].data_ns;
  return breakdown->steps[step].parts[static_cast<std::size_t>(Category::data)];
}

void take_steps(const View& source, const Breakdown* breakdown, LoaderView& view) {
  const Session& session = source.session;
  const std::vector<std::size_t>& counted = source.counted;
  for (const std::size_t i : counted) {
    const Step& step = session.steps[i];
    const std::uint64_t all = step.end_ns - step.begin_ns,
                        wait = std::min(wait_of(source, breakdown, i), all);
    view.waits_ns.push_back(wait);
    view.wait_ns += static_cast<double>(wait) / static_cast<double>(counted.size());
    view.step_ns += static_cast<double>(all - wait) / static_cast<double>(counted.size());
  }
  view.stall_period = stall_period(view.waits_ns, view.step_ns);
  view.waiting = concentration({view.waits_ns.begin(), view.waits_ns.end()});
}

}  // namespace

LoaderView loader_view(const View& source, const Breakdown* breakdown) {
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
  take_steps(source, breakdown, view);
  take_cpu(source, view);
  return view;
}

Concentration concentration(std::vector<double> parts) {
  double all = 0;
  for (const double part : parts) all += part;
  if (all <= 0) return {};
  std::ranges::sort(parts, std::ranges::greater{});
  double sum = 0;
  std::size_t count = 0;
  while (sum < most_of * all) sum += parts[count++];
  return {.share_of_all = static_cast<double>(count) / static_cast<double>(parts.size()),
          .share_of_sum = sum / all};
}

namespace {

// Time of all stages but reads, per batch.
double unread_ns(const LoaderView& view) {
  double sum = 0;
  for (std::size_t i = 0; i < view.stages.size(); ++i)
    if (view.stages[i] != "read") sum += view.stage_ns[i];
  return sum;
}

}  // namespace

double cpu_share_of(const LoaderView& view, const std::string& stage) {
  const double unread = unread_ns(view),
               awake = unread > 0 ? std::max(0.0, 1 - view.asleep_ns / unread) : 1;
  double all = 0, own = 0;
  for (std::size_t i = 0; i < view.stages.size(); ++i) {
    const double ns = view.stages[i] == "read" ? std::max(0.0, view.stage_ns[i] - view.blocked_ns)
                                               : awake * view.stage_ns[i];
    all += ns;
    if (view.stages[i] == stage) own = ns;
  }
  return all > 0 ? own / all : 0;
}

double asleep_share_of(const LoaderView& view, const std::string& stage) {
  const double all = unread_ns(view);
  if (all <= 0 || stage == "read") return 0;
  const auto at = std::ranges::find(view.stages, stage);
  if (at == view.stages.end()) return 0;
  return view.stage_ns[static_cast<std::size_t>(at - view.stages.begin())] / all;
}

}  // namespace warpstep::profiler
