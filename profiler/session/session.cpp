#include "profiler/session/session.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

class SessionChecker {
 public:
  SessionChecker(const Session& session, const std::string& path)
      : session_(session), path_(path) {}

  // Requires sorted records.
  void run() const {
    for (const Step& step : session_.steps) check_step(step);
    for (const Span& span : session_.spans) check_span(span);
    for (const Span& span : session_.past) check_span(span);
    for (const Kept& kept : session_.kept)
      require_order("a stretch of the past", kept.begin_ns, kept.end_ns);
    for (const Activity& activity : session_.activities) check_activity(activity);
    for (const Sample& sample : session_.samples) require_name("a sample", sample.name);
    for (const Device& device : session_.devices) require_name("a device", device.name);
    for (const Phase& phase : session_.phases) {
      require_order("a phase", phase.begin_ns, phase.end_ns);
      require_name("a phase", phase.name);
    }
    for (const Window& window : session_.windows)
      require_order("a window", window.begin_ns, window.end_ns);
  }

  // Refuses content that no run writes and no export can represent.
  void run_strictly() const {
    const Step* before = nullptr;
    for (const Step& step : session_.steps) {
      require_time("a step", step.end_ns);
      if (before) require_succession(*before, step);
      before = &step;
    }
    for (const Span& span : session_.spans) require_time("a span", span.end_ns);
    for (const Span& span : session_.past) require_time("a span", span.end_ns);
    for (const Activity& activity : session_.activities) {
      require_time("an activity", activity.end_ns);
      if (!has_device(session_, activity))
        fail<DataError>("{}: an activity refers to device {}, which the session does not describe",
                        path_, activity.device);
    }
    for (const Sample& sample : session_.samples) {
      require_time("a sample", sample.at_ns);
      if (!std::isfinite(sample.value))
        fail<DataError>("{}: a sample of '{}' is {}, not a number", path_,
                        session_.name(sample.name), sample.value);
    }
    for (const Window& window : session_.windows) require_time("a window", window.end_ns);
    for (const Phase& phase : session_.phases) {
      require_time("a phase", phase.end_ns);
      if (phase.ns > phase.end_ns - phase.begin_ns)
        fail<DataError>("{}: the phase '{}' takes {} ns of {} ns", path_, session_.name(phase.name),
                        phase.ns, phase.end_ns - phase.begin_ns);
    }
    for (const ClockReading& clock : session_.clocks) {
      require_time("a reading of the clocks", clock.monotonic_ns);
      if (clock.realtime_ns >= std::uint64_t{1} << 63)
        fail<DataError>("{}: a reading of the wall clock is {} ns", path_, clock.realtime_ns);
    }
  }

 private:
  // Exports write times relative to the first one, as numbers of 53 bits.
  void require_time(const char* what, std::uint64_t ns) const {
    if (ns > first_ns_ && ns - first_ns_ >= std::uint64_t{1} << 53)
      fail<DataError>("{}: {} has a time of {} ns, more than 104 days after the first one of {} ns",
                      path_, what, ns, first_ns_);
  }
  void require_order(const char* what, std::uint64_t begin, std::uint64_t end) const {
    if (begin > end)
      fail<DataError>("{}: {} ends at {} ns, before it begins at {} ns", path_, what, end, begin);
  }
  void require_name(const char* what, std::uint32_t name) const {
    if (name >= session_.names.size())
      fail<DataError>("{}: {} refers to name {} of {}", path_, what, name, session_.names.size());
  }
  void require_succession(const Step& before, const Step& step) const {
    if (step.step <= before.step)
      fail<DataError>("{}: step {} comes after step {}", path_, step.step, before.step);
    if (step.begin_ns < before.end_ns)
      fail<DataError>("{}: step {} begins at {} ns, before step {} ends at {} ns", path_, step.step,
                      step.begin_ns, before.step, before.end_ns);
  }
  void check_span(const Span& span) const {
    require_order("a span", span.begin_ns, span.end_ns);
    require_name("a span", span.name);
    if (span.thread >= session_.threads.size())
      fail<DataError>("{}: a span refers to thread {} of {}", path_, span.thread,
                      session_.threads.size());
  }
  void check_activity(const Activity& activity) const {
    if (has_times(activity)) require_order("an activity", activity.start_ns, activity.end_ns);
    require_name("an activity", activity.name);
    if (activity.what > What::overhead)
      fail<DataError>("{}: an activity has the invalid kind {}", path_,
                      static_cast<int>(activity.what));
  }
  void check_step(const Step& step) const {
    require_order("a step", step.begin_ns, step.end_ns);
    std::uint64_t left =
        step.end_ns - step.begin_ns;  // subtracted part by part: a sum may wrap around
    for (const std::uint64_t part :
         {step.data_ns, step.copies_ns, step.kernels_ns, step.cpu_ns, step.other_ns}) {
      if (part > left)
        fail<DataError>("{}: the parts of step {} are longer than its {} ns", path_, step.step,
                        step.end_ns - step.begin_ns);
      left -= part;
    }
    if (left != 0)
      fail<DataError>("{}: the parts of step {} are {} ns shorter than it", path_, step.step, left);
  }

  const Session& session_;
  const std::string& path_;
  const std::uint64_t first_ns_ = earliest_ns(session_);
};

}  // namespace

std::uint64_t earliest_ns(const Session& session) {
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first = session.clocks.empty() ? none : session.clocks.front().monotonic_ns;
  for (const Step& step : session.steps) first = std::min(first, step.begin_ns);
  for (const Span& span : session.spans) first = std::min(first, span.begin_ns);
  for (const Activity& activity : session.activities)
    if (has_times(activity)) first = std::min(first, activity.start_ns);
  for (const Sample& sample : session.samples) first = std::min(first, sample.at_ns);
  return first == none ? 0 : first;
}

bool has_device(const Session& session, const Activity& activity) {
  return !is_on_device(activity) || activity.what == What::graph ||
         std::any_of(session.devices.begin(), session.devices.end(),
                     [&](const Device& device) { return device.id == activity.device; });
}

void finish_session(Session& session, const std::string& path) {
  std::stable_sort(session.steps.begin(), session.steps.end(),
                   [](const Step& a, const Step& b) { return a.begin_ns < b.begin_ns; });
  for (std::vector<Span>* const spans : {&session.spans, &session.past})
    std::stable_sort(spans->begin(), spans->end(), [](const Span& a, const Span& b) {
      return std::tuple(a.thread, a.begin_ns, ~a.end_ns) <
             std::tuple(b.thread, b.begin_ns, ~b.end_ns);
    });
  std::stable_sort(session.activities.begin(), session.activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  std::stable_sort(session.samples.begin(), session.samples.end(),
                   [](const Sample& a, const Sample& b) { return a.at_ns < b.at_ns; });
  std::stable_sort(session.phases.begin(), session.phases.end(),
                   [](const Phase& a, const Phase& b) {
                     return std::tuple(a.begin_ns, a.depth) < std::tuple(b.begin_ns, b.depth);
                   });
  SessionChecker(session, path).run();
}

void refuse_impossible(const Session& session, const std::string& path) {
  SessionChecker(session, path).run_strictly();
}

}  // namespace warpstep::profiler
