#include "profiler/analysis/scope.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "engine/core/error.h"

namespace warpstep::profiler {

std::string phase_of(const Json& call) {
  std::string phase = fields::text(call, "phase");
  if (phase == "dgrad") return "data_grad";
  if (phase == "wgrad") return "weight_grad";
  return phase;
}

namespace {

// As it is stored: the CUDA backend pads 3 channels to 8, and its layouts are such shapes.
std::int64_t stored_extent(const Json& value, std::int64_t extent) {
  const std::string layout = fields::text(value, "layout");
  const std::string last = layout.substr(layout.rfind('x') + 1);  // of no x: all
  std::int64_t stored = 0;
  const auto [end, error] = std::from_chars(last.data(), last.data() + last.size(), stored);
  return error == std::errc() && end == last.data() + last.size() ? stored : extent;
}

std::string shape_text(const Json& value, std::vector<std::int64_t>& last_extents) {
  std::string shown = fields::text(value, "dtype");
  const bool is_float = shown == "f32" || shown == "f16" || shown == "bf16";
  const Json& shape = fields::child(value, "shape");
  if (!shape.is_array() || shape.empty()) return shown;
  char separator = ' ';
  for (const Json& extent : shape) {
    shown += separator;
    shown += extent.is_number_integer() ? std::to_string(extent.get<std::int64_t>()) : "?";
    separator = 'x';
  }
  if (is_float && shape.back().is_number_integer())
    last_extents.push_back(stored_extent(value, shape.back().get<std::int64_t>()));
  return shown;
}

ProgramCall program_call(const Json& json) {
  ProgramCall call{.title = fields::text(json, "title"),
                   .layer = fields::text(json, "layer"),
                   .op = fields::text(json, "op"),
                   .implementation = fields::text(json, "implementation"),
                   .phase = phase_of(json),
                   .source = fields::text(json, "source"),
                   .attributes = fields::text(json, "attributes"),
                   .flops = std::max(0.0, fields::number(json, "flops")),
                   .bytes = std::max(0.0, fields::number(json, "bytes"))};
  const double executed = fields::number(json, "executed_flops");  // not in older sessions
  call.executed_flops = executed > 0 ? executed : call.flops;
  const Json& in = fields::child(json, "in");
  if (in.is_array())
    for (const Json& value : in) {
      if (!call.inputs.empty()) call.inputs += ", ";
      call.inputs += shape_text(value, call.last_extents);
    }
  const Json& out = fields::child(json, "out");
  if (out.is_array())
    for (const Json& value : out) shape_text(value, call.last_extents);
  return call;
}

std::vector<ProgramCall> program_calls(const Session& session) {
  std::vector<ProgramCall> calls;
  const Json& listed = fields::child(session.program, "calls");
  if (listed.is_array())
    for (const Json& call : listed) calls.push_back(program_call(call));
  return calls;
}

// The one that waits for data, else "main", else the first.
std::optional<std::uint32_t> trainer_thread(const Session& session) {
  if (session.threads.empty()) return std::nullopt;
  std::vector<std::uint64_t> waits(session.threads.size());
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::wait) ++waits[span.thread];
  const auto most = std::max_element(waits.begin(), waits.end());
  if (*most > 0) return static_cast<std::uint32_t>(most - waits.begin());
  const auto main = std::find_if(session.threads.begin(), session.threads.end(),
                                 [](const Thread& thread) { return thread.name == "main"; });
  if (main == session.threads.end()) return 0;
  return static_cast<std::uint32_t>(main - session.threads.begin());
}

// When something was recorded that shows a step's parts.
std::vector<Interval> traced_times(const Session& session, std::optional<std::uint32_t> trainer) {
  std::vector<Interval> times;
  if (session.computes_on_host()) {
    for (const Span& span : session.spans)
      if (span.thread == trainer) times.push_back({span.begin_ns, span.end_ns});
  } else {
    for (const Activity& activity : session.activities)
      if (is_on_device(activity)) times.push_back({activity.start_ns, activity.end_ns});
  }
  return merged(std::move(times));
}

bool overlaps(const Window& window, const std::vector<Interval>& traced) {
  const auto after = std::upper_bound(
      traced.begin(), traced.end(), window.begin_ns,
      [](std::uint64_t at, const Interval& interval) { return at < interval.end_ns; });
  return after != traced.end() && after->begin_ns < window.end_ns;
}

std::vector<Window> traced_windows(const Session& session, std::optional<std::uint32_t> trainer) {
  const std::vector<Interval> traced = traced_times(session, trainer);
  std::vector<Window> windows = complete_windows(session);
  // What a device still did after a deep window is recorded too. A past that was kept from then on
  // would have that work, and idle steps after it.
  const bool has_deep = !session.computes_on_host() &&
                        std::any_of(windows.begin(), windows.end(),
                                    [](const Window& window) { return window.deep != 0; });
  std::erase_if(windows, [&](const Window& window) {
    return (has_deep && window.deep == 0) || !overlaps(window, traced);
  });
  return windows;
}

std::vector<std::size_t> all_but_the_first(std::size_t count) {
  std::vector<std::size_t> steps(count);
  std::iota(steps.begin(), steps.end(), std::size_t{0});
  if (steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

}  // namespace

std::vector<Window> complete_windows(const Session& session) {
  std::vector<Window> windows;
  std::copy_if(session.windows.begin(), session.windows.end(), std::back_inserter(windows),
               [](const Window& window) { return window.complete != 0; });
  return windows;
}

IntervalSet step_numbers(const std::vector<Window>& windows) {
  std::vector<Interval> numbers;  // the end not included
  for (const Window& window : windows)
    numbers.push_back({window.first_step, std::max(window.last_step, window.last_step + 1)});
  return IntervalSet(std::move(numbers));
}

std::vector<std::size_t> steps_of(const Session& session, const std::vector<Window>& windows) {
  const IntervalSet numbers = step_numbers(windows);
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < session.steps.size(); ++i)
    if (numbers.has(session.steps[i].step)) steps.push_back(i);
  return steps;
}

bool is_of_thread(const Session& session, const Activity& activity,
                  std::optional<std::uint32_t> thread) {
  return thread && activity.stream == session.threads[*thread].system;
}

bool has_graph_kernels(const Session& session) {
  return std::any_of(session.activities.begin(), session.activities.end(),
                     [](const Activity& a) { return a.what == What::kernel && a.graph_node != 0; });
}

std::vector<Interval> step_times(const Session& session) {
  std::vector<Interval> times;
  std::uint64_t end = 0;
  for (const Step& step : session.steps) {
    end = std::max(end, step.begin_ns);
    times.push_back({end, std::max(end, step.end_ns)});
    end = times.back().end_ns;
  }
  return times;
}

std::vector<const Device*> run_devices(const Session& session) {
  std::vector<const Device*> all, active;
  std::set<std::uint32_t> seen;
  if (session.devices.size() > 1)
    for (const Activity& activity : session.activities)
      if (is_on_device(activity)) seen.insert(activity.device);
  for (const Device& device : session.devices) {
    all.push_back(&device);
    if (seen.contains(device.id)) active.push_back(&device);
  }
  if (!active.empty() || all.size() < 2) return active.empty() ? all : active;
  const std::string asked = fields::text(fields::child(session.stamp, "options"), "device");
  for (const Device* const device : all)
    if (asked == "cuda:" + std::to_string(device->id)) return {device};
  return {all.front()};
}

const Json* stamped_gpu(const Session& session, std::uint32_t device) {
  const Json& gpus = fields::child(session.stamp, "gpus");
  if (!gpus.is_array()) return nullptr;
  bool has_ids = false;
  for (const Json& gpu : gpus) {
    const Json* const id = fields::member(gpu, "id");
    if (id == nullptr) continue;
    has_ids = true;
    if (fields::whole(gpu, "id", -1) == static_cast<std::int64_t>(device)) return &gpu;
  }
  return has_ids || device >= gpus.size() ? nullptr : &gpus[device];
}

StepIndex::StepIndex(const Session& session, std::vector<std::size_t> steps)
    : steps_(std::move(steps)) {
  const std::vector<Interval> all = step_times(session);
  for (const std::size_t step : steps_) times_.push_back(all[step]);
}

int StepIndex::at(std::uint64_t at_ns) const {
  const auto after =
      std::upper_bound(times_.begin(), times_.end(), at_ns,
                       [](std::uint64_t at, const Interval& time) { return at < time.begin_ns; });
  if (after == times_.begin() || at_ns >= std::prev(after)->end_ns) return -1;
  return static_cast<int>(after - times_.begin()) - 1;
}

Launches::Launches(const Session& session) : session_(session) {
  for (std::size_t i = 0; i < session.activities.size(); ++i) {
    const Activity& activity = session.activities[i];
    if (activity.what == What::api && activity.correlation != 0)
      by_correlation_.emplace(activity.correlation, static_cast<std::uint32_t>(i));
  }
}

const Activity* Launches::find(std::uint32_t correlation) const {
  const auto found = by_correlation_.find(correlation);
  return found == by_correlation_.end() ? nullptr : &session_.activities[found->second];
}

View::View(const Session& session)
    : session(session),
      options(fields::child(session.stamp, "options")),
      trainer(trainer_thread(session)),
      program(program_calls(session)),
      windows(traced_windows(session, trainer)),
      recorded(session, steps_of(session, windows)),
      counted(recorded.steps()),
      launches(session),
      metrics(session) {
  if (counted.empty()) {
    windows = complete_windows(session);
    counted = steps_of(session, windows);
  }
  if (counted.empty()) counted = all_but_the_first(session.steps.size());
  std::vector<Interval> times;
  for (const Window& window : windows) times.push_back({window.begin_ns, window.end_ns});
  window_times = IntervalSet(std::move(times));
  const std::vector<Interval> all = step_times(session);
  std::vector<Interval> of_counted;
  for (const std::size_t step : counted) of_counted.push_back(all[step]);
  counted_times = IntervalSet(std::move(of_counted));
}

bool View::in_windows(std::uint64_t at_ns) const {
  return window_times.has(at_ns);
}

bool View::in_steps(std::uint64_t at_ns) const {
  return in_windows(at_ns) && std::ranges::binary_search(counted, step_at(session, at_ns));
}

std::uint64_t View::windows_ns() const {
  std::uint64_t sum = 0;
  for (const Window& window : windows) sum += window.end_ns - window.begin_ns;
  return sum;
}

std::size_t step_at(const Session& session, std::uint64_t at_ns) {
  const auto after =
      std::upper_bound(session.steps.begin(), session.steps.end(), at_ns,
                       [](std::uint64_t at, const Step& step) { return at < step.begin_ns; });
  if (after == session.steps.begin()) return session.steps.size();
  const auto step = after - 1;
  return at_ns < step->end_ns ? static_cast<std::size_t>(step - session.steps.begin())
                              : session.steps.size();
}

MetricLevel metric_level(const View& view, std::string_view metric) {
  const std::span<const Sample> samples = view.metrics.of(metric);
  const MetricLevel within = level_of(samples, view.counted_times);
  return within.count > 0 ? within : level_of(samples);
}

std::size_t steps_per_update(const Session& session) {
  constexpr std::int64_t most = 65536;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(
      fields::whole(fields::child(session.stamp, "options"), "accumulate", 1), 1, most));
}

CpuSet affinity_of(const Session& session) {
  try {
    return parse_cpus(fields::text(session.stamp, "affinity"));
  } catch (const UsageError&) {
    return {};
  }
}

int usable_cores(const Session& session) {
  double count = fields::number(session.loader, "cores");
  if (count <= 0) count = static_cast<double>(affinity_of(session).size());
  if (count <= 0) count = fields::number(fields::child(session.stamp, "cpu"), "cores");
  const double quota = fields::number(fields::child(session.stamp, "cgroup"), "cpu_quota_cores");
  if (quota > 0 && (count <= 0 || quota < count)) count = std::max(1.0, std::ceil(quota));
  return static_cast<int>(std::clamp(count, 0.0, 4096.0));
}

int kernel_threads(const View& view) {
  const Session& session = view.session;
  if (!session.computes_on_host()) return 0;
  for (const std::int64_t given : {fields::whole(session.loader, "kernel_threads"),
                                   fields::whole(fields::child(session.stamp, "device"), "threads"),
                                   fields::whole(view.options, "threads")})
    if (given > 0) return static_cast<int>(std::min<std::int64_t>(given, 4096));
  return std::max(1, usable_cores(session));
}

namespace {

struct Item {
  Interval time;
  std::string_view bound;
  std::uint32_t name = 0;
  bool is_whole = false;  // what is nested in it is part of it
};

Item item_of(const Session& session, const Span& span) {
  Item item{{span.begin_ns, span.end_ns}, "cpu", span.name, false};
  switch (session.kind(span)) {
    case Kind::wait:
    case Kind::sample:
    case Kind::stage: item.bound = "data"; break;
    case Kind::sync: item.bound = "sync"; break;
    case Kind::copy: item.bound = session.computes_on_host() ? "copy" : "cpu"; break;
    case Kind::host_api: item.bound = "launch"; break;
    case Kind::call: item.bound = session.computes_on_host() ? "kernel" : "cpu"; break;
    default: break;
  }
  item.is_whole = item.bound != "cpu" && item.bound != "launch";
  return item;
}

std::vector<Item> items_of(const View& view) {
  const Session& session = view.session;
  std::vector<Item> items;
  for (const Span& span : session.spans)
    if (span.thread == view.trainer && span.begin_ns < span.end_ns)
      items.push_back(item_of(session, span));
  for (const Activity& a : session.activities) {
    const bool is_host = a.what == What::api || a.what == What::sync;
    if (!is_host || a.start_ns >= a.end_ns || !is_of_thread(session, a, view.trainer)) continue;
    const bool waits = a.what == What::sync;
    items.push_back({{a.start_ns, a.end_ns}, waits ? "sync" : "launch", a.name, waits});
  }
  std::ranges::stable_sort(items, begins_outside<Interval>, &Item::time);
  return items;
}

}  // namespace

std::vector<HostSlice> host_timeline(const View& view) {
  const std::vector<Item> items = items_of(view);
  std::vector<Interval> times;
  for (const Item& item : items) times.push_back(item.time);
  const NestedSlices nesting = nest(times);
  std::vector<std::size_t> owner(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    owner[i] = i;
    if (nesting.parent[i] < 0) continue;
    const std::size_t outer = owner[static_cast<std::size_t>(nesting.parent[i])];
    if (items[outer].is_whole) owner[i] = outer;
  }
  std::vector<HostSlice> slices;
  for (const TimeSlice& slice : nesting.slices) {
    const Item& item = items[owner[slice.item]];
    const bool continues = !slices.empty() && slices.back().end_ns == slice.begin_ns &&
                           slices.back().name == item.name && slices.back().bound == item.bound;
    if (continues)
      slices.back().end_ns = slice.end_ns;
    else
      slices.push_back({slice.begin_ns, slice.end_ns, item.bound, item.name});
  }
  return slices;
}

}  // namespace warpstep::profiler
