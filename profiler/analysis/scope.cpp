#include "profiler/analysis/scope.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "profiler/analysis/breakdown.h"

namespace warpstep::profiler::fields {

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(std::string(key));
  return at == object.end() ? nullptr : &*at;
}

const Json& child(const Json& object, std::string_view key) {
  static const Json none = Json::object();
  const Json* const found = member(object, key);
  return found != nullptr && found->is_structured() ? *found : none;
}

double number(const Json& object, std::string_view key, double otherwise) {
  const Json* const found = member(object, key);
  if (found == nullptr || !found->is_number()) return otherwise;
  const double value = found->get<double>();
  return std::isfinite(value) ? value : otherwise;
}

std::int64_t whole(const Json& object, std::string_view key, std::int64_t otherwise) {
  const double value = number(object, key, static_cast<double>(otherwise));
  return std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : otherwise;
}

std::string text(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json* const found = member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>()
                                                : std::string(otherwise);
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* const found = member(object, key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace warpstep::profiler::fields

namespace warpstep::profiler::analysis {
namespace {

std::string shape_text(const Json& value, std::vector<std::int64_t>& last_extents) {
  std::string shown = text(value, "dtype");
  const bool is_float = shown == "f32" || shown == "f16" || shown == "bf16";
  const Json& shape = part(value, "shape");
  if (!shape.is_array() || shape.empty()) return shown;
  char separator = ' ';
  for (const Json& extent : shape) {
    shown += separator;
    shown += extent.is_number_integer() ? std::to_string(extent.get<std::int64_t>()) : "?";
    separator = 'x';
  }
  if (is_float && shape.back().is_number_integer())
    last_extents.push_back(shape.back().get<std::int64_t>());
  return shown;
}

ProgramCall call_of(const Json& json) {
  ProgramCall call{.title = text(json, "title"),
                   .layer = text(json, "layer"),
                   .op = text(json, "op"),
                   .implementation = text(json, "implementation"),
                   .phase = phase_of(json),
                   .flops = std::max(0.0, number(json, "flops")),
                   .bytes = std::max(0.0, number(json, "bytes"))};
  const Json& in = part(json, "in");
  if (in.is_array())
    for (const Json& value : in) {
      if (!call.inputs.empty()) call.inputs += ", ";
      call.inputs += shape_text(value, call.last_extents);
    }
  const Json& out = part(json, "out");
  if (out.is_array())
    for (const Json& value : out) shape_text(value, call.last_extents);
  return call;
}

}  // namespace

const Json& part(const Json& object, std::string_view key) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

double number(const Json& object, std::string_view key, double otherwise) {
  const Json& value = part(object, key);
  if (!value.is_number()) return otherwise;
  const double told = value.get<double>();
  return std::isfinite(told) ? told : otherwise;
}

std::uint64_t count(const Json& object, std::string_view key) {
  const Json& value = part(object, key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  const double told = number(object, key);
  return told >= 1 && told < 1e18 ? static_cast<std::uint64_t>(told) : 0;
}

std::string text(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json& value = part(object, key);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

std::string phase_of(const Json& call) {
  const std::string phase = text(call, "phase");
  if (phase == "dgrad") return "data_grad";
  if (phase == "wgrad") return "weight_grad";
  return phase;
}

std::vector<ProgramCall> program_calls(const Session& session) {
  std::vector<ProgramCall> calls;
  const Json& listed = part(session.program, "calls");
  if (listed.is_array())
    for (const Json& call : listed) calls.push_back(call_of(call));
  return calls;
}

std::string precision(const Session& session) {
  return text(part(session.stamp, "options"), "precision", "fp32");
}

namespace {

// When something was recorded from which a step's parts can be told.
std::vector<Interval> traced_times(const Session& session) {
  std::vector<Interval> times;
  if (session.computes_on_host()) {
    const auto trainer = trainer_thread(session);
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

// Of complete windows that `takes` takes.
template <class Takes>
std::vector<std::size_t> steps_in_windows(const Session& session, const Takes& takes) {
  std::vector<Interval> numbers;  // of steps, the end not included
  for (const Window& window : session.windows)
    if (window.complete != 0 && takes(window))
      numbers.push_back({window.first_step, std::max(window.last_step, window.last_step + 1)});
  numbers = merged(std::move(numbers));
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < session.steps.size(); ++i) {
    const std::uint64_t number = session.steps[i].step;
    const auto after =
        std::upper_bound(numbers.begin(), numbers.end(), number,
                         [](std::uint64_t n, const Interval& in) { return n < in.begin_ns; });
    if (after != numbers.begin() && number < std::prev(after)->end_ns) steps.push_back(i);
  }
  return steps;
}

}  // namespace

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

bool is_of_thread(const Session& session, const Activity& activity,
                  std::optional<std::uint32_t> thread) {
  return thread && activity.stream == session.threads[*thread].system;
}

bool tells_graph_kernels(const Session& session) {
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

std::vector<std::size_t> recorded_steps(const Session& session) {
  const std::vector<Interval> traced = traced_times(session);
  return steps_in_windows(session, [&](const Window& window) { return overlaps(window, traced); });
}

std::vector<std::size_t> counted_steps(const Session& session) {
  std::vector<std::size_t> steps = recorded_steps(session);
  if (steps.empty()) steps = steps_in_windows(session, [](const Window&) { return true; });
  if (!steps.empty()) return steps;
  steps.resize(session.steps.size());
  std::iota(steps.begin(), steps.end(), std::size_t{0});
  if (steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

StepIndex::StepIndex(const Session& session) : steps_(recorded_steps(session)) {
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

}  // namespace warpstep::profiler::analysis

namespace warpstep::profiler::advice {
namespace {

Level level_between(const Session& session, std::string_view metric, std::uint64_t begin_ns,
                    std::uint64_t end_ns) {
  Level level;
  double sum = 0;
  for (const Sample& sample : session.samples) {
    if (sample.at_ns < begin_ns || sample.at_ns > end_ns || session.name(sample.name) != metric)
      continue;
    level.most = level.count == 0 ? sample.value : std::max(level.most, sample.value);
    sum += sample.value;
    ++level.count;
  }
  if (level.count > 0) level.mean = sum / static_cast<double>(level.count);
  return level;
}

}  // namespace

std::vector<std::size_t> counted_steps(const Session& session) {
  std::vector<std::size_t> counted;
  for (std::size_t i = 0; i < session.steps.size(); ++i) {
    const std::uint64_t number = session.steps[i].step;
    const auto has_it = [&](const Window& window) {
      return window.complete != 0 && window.first_step <= number && number <= window.last_step;
    };
    if (std::any_of(session.windows.begin(), session.windows.end(), has_it)) counted.push_back(i);
  }
  if (counted.empty())
    for (std::size_t i = 1; i < session.steps.size(); ++i) counted.push_back(i);
  return counted;
}

bool in_windows(const Session& session, std::uint64_t at_ns) {
  return std::any_of(session.windows.begin(), session.windows.end(), [&](const Window& window) {
    return window.complete != 0 && window.begin_ns <= at_ns && at_ns < window.end_ns;
  });
}

std::uint64_t windows_ns(const Session& session) {
  std::uint64_t sum = 0;
  for (const Window& window : session.windows)
    if (window.complete != 0) sum += window.end_ns - window.begin_ns;
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

Level level(const Session& session, std::string_view metric) {
  const std::vector<std::size_t> counted = counted_steps(session);
  if (!counted.empty()) {
    const Level within = level_between(session, metric, session.steps[counted.front()].begin_ns,
                                       session.steps[counted.back()].end_ns);
    if (within.count > 0) return within;
  }
  return level_between(session, metric, 0, ~std::uint64_t{0});
}

int cores(const Session& session) {
  double count = fields::number(session.loader, "cores");
  if (count <= 0) count = fields::number(fields::child(session.stamp, "cpu"), "cores");
  const double quota = fields::number(fields::child(session.stamp, "cgroup"), "cpu_quota_cores");
  if (quota > 0 && (count <= 0 || quota < count)) count = std::max(1.0, std::floor(quota));
  return static_cast<int>(std::clamp(count, 0.0, 4096.0));
}

}  // namespace warpstep::profiler::advice

namespace warpstep::profiler::analysis {
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

std::vector<Item> items_of(const Session& session) {
  const auto trainer = trainer_thread(session);
  std::vector<Item> items;
  for (const Span& span : session.spans)
    if (span.thread == trainer && span.begin_ns < span.end_ns)
      items.push_back(item_of(session, span));
  for (const Activity& a : session.activities) {
    const bool is_host = a.what == What::api || a.what == What::sync;
    if (!is_host || a.start_ns >= a.end_ns || !is_of_thread(session, a, trainer)) continue;
    const bool waits = a.what == What::sync;
    items.push_back({{a.start_ns, a.end_ns}, waits ? "sync" : "launch", a.name, waits});
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.time.begin_ns != b.time.begin_ns ? a.time.begin_ns < b.time.begin_ns
                                              : a.time.end_ns > b.time.end_ns;
  });
  return items;
}

}  // namespace

std::vector<HostSlice> host_timeline(const Session& session) {
  const std::vector<Item> items = items_of(session);
  std::vector<Interval> times;
  for (const Item& item : items) times.push_back(item.time);
  const Nesting nesting = nest(times);
  std::vector<std::size_t> owner(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    owner[i] = i;
    if (nesting.parent[i] < 0) continue;
    const std::size_t outer = owner[static_cast<std::size_t>(nesting.parent[i])];
    if (items[outer].is_whole) owner[i] = outer;
  }
  std::vector<HostSlice> slices;
  for (const Slice& slice : nesting.slices) {
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

}  // namespace warpstep::profiler::analysis
