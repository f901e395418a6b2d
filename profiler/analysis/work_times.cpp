#include <algorithm>
#include <tuple>

#include "profiler/analysis/attribution.h"
#include "profiler/analysis/device.h"
#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler::analysis {
namespace {

constexpr std::uint64_t most_calls = 1U << 16;  // without a program, an index beyond is damage

struct Event {  // of a call in a step
  std::uint32_t call = 0, step = 0, correlation = 0;
  std::uint64_t ns = 0;
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.call, a.step, a.correlation) < std::tie(b.call, b.step, b.correlation);
  }
};

class Finder {
 public:
  Finder(const Session& session, const StepIndex& steps, std::size_t calls)
      : session_(session),
        steps_(steps),
        calls_(calls),
        times_{std::vector<CallTimes>(calls), {}} {}

  AllTimes run() {
    for (const Span& span : session_.spans)
      if (session_.kind(span) == Kind::call) take(span);
    const Attribution attribution(session_);
    const auto tensor = tensor_names();
    const bool skips_graphs = tells_graph_kernels(session_);
    for (const Activity& activity : session_.activities)
      if (is_on_device(activity) && !(activity.what == What::graph && skips_graphs))
        take(activity, attribution, tensor);
    std::sort(events_.begin(), events_.end());
    for (std::size_t i = 0; i < events_.size();) i = take_step(i);
    for (CallTimes& times : times_.calls) std::sort(times.step_ns.begin(), times.step_ns.end());
    std::sort(times_.others.step_ns.begin(), times_.others.step_ns.end());
    return std::move(times_);
  }

 private:
  CallTimes& of(std::uint64_t call) { return call < calls_ ? times_.calls[call] : times_.others; }

  void take(const Span& span) {
    const int step = steps_.at(span.begin_ns);
    if (step < 0) return;
    CallTimes& times = of(span.arg);
    const std::uint64_t ns = span.end_ns - span.begin_ns;
    ++times.count;
    if (!session_.computes_on_host()) {
      times.host_ns += ns;
      return;
    }
    times.kernels_ns += ns;
    add(span.arg, step, 0, ns);
  }

  void take(const Activity& activity, const Attribution& attribution,
            const std::vector<bool>& tensor) {
    const int step = steps_.at(activity.start_ns);
    if (step < 0) return;
    const std::uint64_t call = attribution.call(activity).value_or(calls_);
    const std::uint64_t ns = activity.end_ns - activity.start_ns;
    add(call, step, activity.correlation, ns);
    if (activity.what != What::kernel) return;
    CallTimes& times = of(call);
    times.kernels_ns += ns;
    times.has_kernels = true;
    if (tensor[activity.name]) times.has_tensor_kernels = true;
  }

  void add(std::uint64_t call, int step, std::uint32_t correlation, std::uint64_t ns) {
    events_.push_back({static_cast<std::uint32_t>(std::min<std::uint64_t>(call, calls_)),
                       static_cast<std::uint32_t>(step), correlation, ns});
  }

  // All of one call in one step from `first` on; the next one.
  std::size_t take_step(std::size_t first) {
    CallTimes& times = of(events_[first].call);
    std::uint64_t ns = 0, launches = 1;
    std::size_t i = first;
    for (; i < events_.size() && events_[i].call == events_[first].call &&
           events_[i].step == events_[first].step;
         ++i) {
      ns += events_[i].ns;
      if (i > first && events_[i].correlation != events_[i - 1].correlation) ++launches;
    }
    times.total_ns += ns;
    times.step_ns.push_back(ns);
    // The host's spans count runs; a replayed graph has none, but one launch for all its kernels.
    has_spans_.resize(calls_ + 1, -1);
    signed char& has = has_spans_[std::min<std::size_t>(events_[first].call, calls_)];
    if (has < 0) has = times.count > 0 ? 1 : 0;
    if (has == 0) times.count += launches;
    return i;
  }

  std::vector<bool> tensor_names() const {
    std::vector<bool> tensor;
    for (const Name& name : session_.names)
      tensor.push_back(name.kind == Kind::kernel && uses_tensor_cores(name.text));
    return tensor;
  }

  const Session& session_;
  const StepIndex& steps_;
  std::size_t calls_;
  AllTimes times_;
  std::vector<Event> events_;
  std::vector<signed char> has_spans_;  // by call; -1: not asked yet
};

}  // namespace

AllTimes find_times(const Session& session, const StepIndex& steps, std::size_t calls) {
  return Finder(session, steps, calls).run();
}

std::vector<ProgramCall> known_calls(const Session& session) {
  std::vector<ProgramCall> calls = program_calls(session);
  if (!calls.empty()) return calls;
  const auto at = [&](std::uint64_t index) -> ProgramCall* {
    if (index >= most_calls) return nullptr;
    if (index >= calls.size()) calls.resize(index + 1);
    return &calls[index];
  };
  const Attribution attribution(session);
  for (const Activity& activity : session.activities)
    if (is_on_device(activity))
      if (const auto call = attribution.call(activity)) at(*call);
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::call)
      if (ProgramCall* call = at(span.arg)) call->title = session.name(span.name);
  return calls;
}

double quantile(const std::vector<std::uint64_t>& sorted, std::size_t zeros, double q) {
  const std::size_t n = sorted.size() + zeros;
  if (n == 0) return 0;
  const auto value = [&](std::size_t i) {
    return i < zeros ? 0.0 : static_cast<double>(sorted[i - zeros]);
  };
  const double at = q * static_cast<double>(n - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, n - 1);
  return value(low) + (at - static_cast<double>(low)) * (value(high) - value(low));
}

}  // namespace warpstep::profiler::analysis
