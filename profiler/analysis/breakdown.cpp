#include "profiler/analysis/breakdown.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

namespace {

// Each launch of a graph whose kernels were recorded, from its first to its last one.
std::vector<Interval> graph_times(const Session& session) {
  std::unordered_map<std::uint32_t, Interval> by_launch;
  for (const Activity& a : session.activities) {
    if (a.graph_node == 0 || !is_on_device(a)) continue;
    Interval& whole =
        by_launch.try_emplace(a.correlation, Interval{a.start_ns, a.end_ns}).first->second;
    whole.begin_ns = std::min(whole.begin_ns, a.start_ns);
    whole.end_ns = std::max(whole.end_ns, a.end_ns);
  }
  std::vector<Interval> times;
  for (const auto& [launch, whole] : by_launch) times.push_back(whole);
  return merged(std::move(times));
}

class Collector {
 public:
  Collector(const View& view, const ReportRules& options)
      : session_(view.session),
        options_(options),
        trainer_(view.trainer),
        counts_graphs_(!has_graph_kernels(view.session)) {}

  ByCategory run() {
    for (const Span& span : session_.spans) take(span);
    for (const Activity& activity : session_.activities) take(activity);
    auto& runtime = of_[static_cast<std::size_t>(Category::runtime)];
    // A function that waits for the device (cudaStreamSynchronize) is a wait before it is anything
    // else; torch_tb_profiler does not know waits.
    if (options_.tb_compatible) return std::move(of_);
    if (session_.computes_on_host()) {
      auto& kernel = of_[static_cast<std::size_t>(Category::kernel)];
      kernel = difference(merged(std::move(kernel)),
                          merged(of_[static_cast<std::size_t>(Category::communication)]));
    }
    runtime = difference(merged(runtime), merged(of_[static_cast<std::size_t>(Category::sync)]));
    leave_out_graphs();
    return std::move(of_);
  }

 private:
  void add(Category category, std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (begin_ns < end_ns) of_[static_cast<std::size_t>(category)].push_back({begin_ns, end_ns});
  }

  // Between the kernels of a graph the device needs no host: whatever that does or waits
  // for meanwhile lengthens no step.
  void leave_out_graphs() {
    if (counts_graphs_ || session_.computes_on_host()) return;
    const std::vector<Interval> graphs = graph_times(session_);
    for (const Category category :
         {Category::runtime, Category::data, Category::sync, Category::cpu}) {
      std::vector<Interval>& of = of_[static_cast<std::size_t>(category)];
      of = difference(merged(std::move(of)), graphs);
    }
  }

  void take(const Activity& a) {
    const bool counts = options_.tb_compatible || is_of_thread(session_, a, trainer_);
    switch (a.what) {
      case What::kernel:
        add(is_communication(session_.name(a.name)) ? Category::communication : Category::kernel,
            a.start_ns, a.end_ns);
        break;
      case What::graph:  // as a whole, unless its kernels are recorded
        if (counts_graphs_) add(Category::kernel, a.start_ns, a.end_ns);
        break;
      case What::copy: add(Category::copy, a.start_ns, a.end_ns); break;
      case What::set: add(Category::memset, a.start_ns, a.end_ns); break;
      case What::api:
        if (counts) add(Category::runtime, a.start_ns, a.end_ns);
        break;
      case What::sync:
        if (counts && !options_.tb_compatible) add(Category::sync, a.start_ns, a.end_ns);
        break;
      case What::overhead: break;
    }
  }

  void take(const Span& span) {
    const Kind kind = session_.kind(span);
    if (options_.tb_compatible)
      add(tb_category(kind), span.begin_ns, is_of_tb(kind) ? span.end_ns : span.begin_ns);
    else if (kind == Kind::call && session_.computes_on_host())
      add(is_communication(session_.name(span.name)) ? Category::communication : Category::kernel,
          span.begin_ns, span.end_ns);
    else if (span.thread == trainer_ && is_communication(session_.name(span.name)))
      add(Category::communication, span.begin_ns, span.end_ns);
    else if (span.thread == trainer_)
      add(category(kind), span.begin_ns, span.end_ns);
  }

  // Of a span of the trainer's thread. One that loads by itself waits for data meanwhile.
  static Category category(Kind kind) {
    switch (kind) {
      case Kind::wait:
      case Kind::sample:
      case Kind::stage: return Category::data;
      case Kind::sync: return Category::sync;
      case Kind::host_api: return Category::runtime;
      default: return Category::cpu;
    }
  }

  // torch_tb_profiler knows nothing of the loader's own threads.
  static bool is_of_tb(Kind kind) {
    return kind != Kind::sample && kind != Kind::stage && kind != Kind::idle;
  }
  static Category tb_category(Kind kind) {
    return kind == Kind::wait       ? Category::data
           : kind == Kind::host_api ? Category::runtime
                                    : Category::cpu;
  }

  const Session& session_;
  const ReportRules& options_;
  std::optional<std::uint32_t> trainer_;
  bool counts_graphs_;
  ByCategory of_;
};

}  // namespace

bool is_communication(std::string_view kernel) {
  return kernel.starts_with("nccl") || kernel.find("all_reduce") != std::string_view::npos ||
         kernel.find("all_gather") != std::string_view::npos;
}

IntervalSet exchanges_in_calls(const View& view) {
  const Session& session = view.session;
  std::vector<Interval> exchanges;
  if (session.computes_on_host())
    for (const Span& span : session.spans)
      if (span.thread == view.trainer && session.kind(span) != Kind::call &&
          is_communication(session.name(span.name)))
        exchanges.push_back({span.begin_ns, span.end_ns});
  return IntervalSet(std::move(exchanges));
}

ByCategory by_category(const View& view, const ReportRules& options) {
  return Collector(view, options).run();
}

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, categories> texts{{
    {"kernel", "Kernel"},
    {"copy", "Memcpy"},
    {"memset", "Memset"},
    {"communication", "Communication"},
    {"runtime", "Runtime"},
    {"data", "DataLoader"},
    {"sync", "Sync wait"},
    {"cpu", "CPU"},
    {"core_wait", "Core wait"},
    {"other", "Other"},
}};

// Adds the time of `pieces`, each of which lies in one of `steps`; both in order.
void credit(std::span<const Interval> steps, std::span<const Interval> pieces, std::size_t category,
            std::vector<Parts>& parts) {
  std::size_t step = 0;
  for (const Interval& piece : pieces) {
    while (steps[step].end_ns < piece.end_ns) ++step;
    parts[step][category] += piece.end_ns - piece.begin_ns;
  }
}

}  // namespace

std::string_view name(Category category) {
  return texts[static_cast<std::size_t>(category)].first;
}

std::string_view title(Category category) {
  return texts[static_cast<std::size_t>(category)].second;
}

std::vector<Parts> sweep(std::span<const Interval> steps,
                         const std::array<std::vector<Interval>, categories>& by_category) {
  std::vector<Parts> parts(steps.size(), Parts{});
  std::vector<Interval> rest;  // of the steps: not yet credited
  for (const Interval& step : steps)
    if (step.begin_ns < step.end_ns) rest.push_back(step);
  for (std::size_t c = 0; c < categories; ++c) {
    if (by_category[c].empty()) continue;
    const std::vector<Interval> wanted = merged(by_category[c]);
    credit(steps, intersection(rest, wanted), c, parts);
    rest = difference(rest, wanted);
  }
  credit(steps, rest, static_cast<std::size_t>(Category::other), parts);
  return parts;
}

namespace {

// Takes up to `ns` out of these categories, in proportion; the largest pays what rounding leaves.
std::uint64_t take_from(Parts& parts, std::span<const Category> from, std::uint64_t ns) {
  const auto at = [&](Category c) -> std::uint64_t& { return parts[static_cast<std::size_t>(c)]; };
  std::uint64_t all = 0;
  Category largest = from.front();
  for (const Category c : from) {
    all += at(c);
    if (at(c) > at(largest)) largest = c;
  }
  ns = std::min(ns, all);
  if (ns == 0) return 0;
  const double share = static_cast<double>(ns) / static_cast<double>(all);
  std::uint64_t taken = 0;
  for (const Category c : from) {
    if (c == largest) continue;
    const auto part =
        std::min(static_cast<std::uint64_t>(share * static_cast<double>(at(c))), ns - taken);
    at(c) -= part;
    taken += part;
  }
  // Rounding down leaves the largest less than one ns for each of the others.
  const std::uint64_t rest = std::min(ns - taken, at(largest));
  at(largest) -= rest;
  return taken + rest;
}

// A rank on the host polls for the others: of its waits for a core a share is in its exchanges.
std::uint64_t outside_of_exchanges(std::uint64_t ns, const Parts& parts) {
  const double all = static_cast<double>(
                   std::accumulate(parts.begin(), parts.end(), std::uint64_t{0})),
               exchanges =
                   static_cast<double>(parts[static_cast<std::size_t>(Category::communication)]);
  if (all <= 0 || exchanges <= 0) return ns;
  return static_cast<std::uint64_t>(static_cast<double>(ns) * (1 - exchanges / all));
}

}  // namespace

void take_core_wait(Parts& parts, std::uint64_t ns, bool computes_on_host) {
  constexpr std::array awake{Category::kernel, Category::runtime, Category::cpu, Category::other};
  constexpr std::array asleep{Category::data, Category::sync};
  const std::span<const Category> running(awake);
  if (computes_on_host) ns = outside_of_exchanges(ns, parts);
  std::uint64_t taken = take_from(parts, computes_on_host ? running : running.subspan(1), ns);
  taken += take_from(parts, asleep, ns - taken);
  parts[static_cast<std::size_t>(Category::core_wait)] += taken;
}

namespace {

// Waits for a core of a thread that works ahead of a device. They lengthen a step as far as the
// device has nothing to do; what the thread then sleeps until the device is done would have been
// longer without them.
class WaitsAheadOfDevice {
 public:
  explicit WaitsAheadOfDevice(const View& view) {
    std::vector<Interval> busy = graph_times(view.session), slept;
    for (const Activity& a : view.session.activities) {
      if (is_on_device(a)) busy.push_back({a.start_ns, a.end_ns});
      if (a.what == What::sync && is_of_thread(view.session, a, view.trainer))
        slept.push_back({a.start_ns, a.end_ns});
    }
    for (const Span& span : view.session.spans)
      if (span.thread == view.trainer && view.session.kind(span) == Kind::sync)
        slept.push_back({span.begin_ns, span.end_ns});
    hidden_ = IntervalSet(intersection(merged(busy), merged(std::move(slept))));
    busy_ = IntervalSet(std::move(busy));
  }

  void take(Parts& parts, const Interval& step, std::uint64_t ns) const {
    const auto at = [&](Category c) -> std::uint64_t& {
      return parts[static_cast<std::size_t>(c)];
    };
    const std::uint64_t busy = busy_.within(step.begin_ns, step.end_ns);
    const auto idle = static_cast<double>(step.end_ns - step.begin_ns - busy);
    if (idle <= 0) return;
    const auto hidden = static_cast<double>(hidden_.within(step.begin_ns, step.end_ns));
    // Gaps between a graph's kernels are of the device.
    const std::uint64_t worked = at(Category::kernel) + at(Category::copy) + at(Category::memset) +
                                 at(Category::communication);
    const std::uint64_t in_graphs = std::min(at(Category::other), busy - std::min(busy, worked));
    at(Category::other) -= in_graphs;
    take_core_wait(
        parts, static_cast<std::uint64_t>(static_cast<double>(ns) * idle / (idle + hidden)), false);
    at(Category::other) += in_graphs;
  }

 private:
  IntervalSet busy_, hidden_;
};

Parts recorded_totals(const Step& step) {
  Parts parts{};
  const auto at = [&](Category c) -> std::uint64_t& { return parts[static_cast<std::size_t>(c)]; };
  at(Category::kernel) = step.kernels_ns;
  at(Category::copy) = step.copies_ns;
  at(Category::data) = step.data_ns;
  at(Category::cpu) = step.cpu_ns;
  at(Category::other) = step.other_ns;
  return parts;
}

void find_means(const std::vector<std::size_t>& counted, Breakdown& breakdown) {
  breakdown.counted = counted.size();
  if (counted.empty()) return;
  const double n = static_cast<double>(counted.size());
  breakdown.from_spans = true;
  for (const std::size_t i : counted) {
    for (std::size_t c = 0; c < categories; ++c)
      breakdown.mean[c] += static_cast<double>(breakdown.steps[i].parts[c]) / n;
    breakdown.from_spans = breakdown.from_spans && breakdown.steps[i].from_spans;
  }
  for (const double part : breakdown.mean) breakdown.step_ns += part;
}

}  // namespace

Breakdown break_down(const View& view, const ReportRules& options) {
  const Session& session = view.session;
  Breakdown breakdown{.tb_compatible = options.tb_compatible};
  for (const Step& step : session.steps)
    breakdown.steps.push_back(
        {step.step, {step.begin_ns, step.end_ns}, recorded_totals(step), false});

  const std::vector<std::size_t>& recorded = view.recorded.steps();
  std::vector<std::size_t> counted = view.counted;
  std::vector<Interval> times = view.recorded.times();
  if (options.tb_compatible && !recorded.empty()) {
    const TbSteps tb = tb_steps(view);
    times = tb.times;
    counted.clear();
    for (std::size_t i = 0; i < recorded.size(); ++i)
      if (tb.is_kept[i]) counted.push_back(recorded[i]);
  }

  if (!recorded.empty()) {
    const std::vector<Parts> parts = sweep(times, by_category(view, options));
    const std::vector<std::uint64_t> waits =
        options.tb_compatible ? std::vector<std::uint64_t>() : core_waits(view);
    const WaitsAheadOfDevice ahead(view);
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      StepParts& step = breakdown.steps[recorded[i]];
      step.time = times[i];
      step.parts = parts[i];
      if (!waits.empty() && session.computes_on_host())
        take_core_wait(step.parts, waits[i], true);
      else if (!waits.empty())
        ahead.take(step.parts, times[i], waits[i]);
      step.from_spans = true;
    }
  }
  find_means(counted, breakdown);
  return breakdown;
}

namespace {

struct DeviceWork {  // that a step launched
  std::uint64_t count = 0, first_ns = UINT64_MAX, last_ns = 0;
};

struct AllWork {
  std::vector<DeviceWork> of_step;
  std::vector<Interval> of_none;  // launched outside every step
};

// In which a launch lies wholly; none: steps.size().
std::size_t step_of(const Activity& launch, const std::vector<Interval>& steps) {
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), launch.start_ns,
                       [](std::uint64_t at, const Interval& step) { return at < step.begin_ns; });
  if (after == steps.begin() || std::prev(after)->end_ns < launch.end_ns) return steps.size();
  return static_cast<std::size_t>(after - steps.begin()) - 1;
}

AllWork find_device_work(const View& view) {
  const std::vector<Interval>& steps = view.recorded.times();
  AllWork all{std::vector<DeviceWork>(steps.size()), {}};
  for (const Activity& activity : view.session.activities) {
    if (!is_on_device(activity)) continue;
    const Activity* launch = view.launches.find(activity.correlation);
    const std::size_t step = launch == nullptr ? steps.size() : step_of(*launch, steps);
    if (step == steps.size()) {
      all.of_none.push_back({activity.start_ns, activity.end_ns});
      continue;
    }
    DeviceWork& work = all.of_step[step];
    ++work.count;
    work.first_ns = std::min(work.first_ns, activity.start_ns);
    work.last_ns = std::max(work.last_ns, activity.end_ns);
  }
  return all;
}

// Steps at the end without any device work, then the last one if it has less than 0.8 of the one
// before: tracing stopped in them.
std::vector<bool> kept(const std::vector<DeviceWork>& of_step) {
  std::vector<bool> is_kept(of_step.size(), true);
  std::size_t n = of_step.size();
  while (n > 0 && of_step[n - 1].count == 0) --n;
  if (n == 0) return is_kept;  // nothing ran on a device
  if (n > 1 &&
      static_cast<double>(of_step[n - 1].count) < 0.8 * static_cast<double>(of_step[n - 2].count))
    --n;
  std::fill(is_kept.begin() + static_cast<std::ptrdiff_t>(n), is_kept.end(), false);
  return is_kept;
}

}  // namespace

TbSteps tb_steps(const View& view) {
  TbSteps tb{view.recorded.times(), {}};
  if (tb.times.empty()) return tb;
  const AllWork work = find_device_work(view);
  tb.is_kept = kept(work.of_step);
  std::uint64_t previous_end = 0;
  for (const Interval& early : work.of_none)
    if (early.end_ns < work.of_step[0].first_ns && work.of_step[0].count > 0)
      previous_end = std::max(previous_end, early.end_ns);
  for (std::size_t i = 0; i < tb.times.size(); ++i) {
    Interval& time = tb.times[i];
    time.begin_ns = std::max(time.begin_ns, previous_end);
    time.end_ns = std::max({time.begin_ns, time.end_ns, work.of_step[i].last_ns});
    previous_end = time.end_ns;
  }
  return tb;
}

}  // namespace warpstep::profiler
