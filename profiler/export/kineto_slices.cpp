#include "profiler/export/kineto_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "profiler/export/kineto_args.h"
#include "profiler/export/lanes.h"
#include "profiler/export/launches.h"

namespace warpstep::profiler {
namespace {

constexpr std::string_view data_wait = "enumerate(DataLoader)#Warpstep.__next__";

class Builder {
 public:
  Builder(const Session& session, const TraceFacts& facts, const KinetoOptions& options)
      : session_(session),
        facts_(facts),
        plan_(plan_launches(session, facts, options.split_graphs)) {}

  KinetoSlices run() {
    add_steps();
    add_spans();
    add_parts();
    add_host_calls();
    number();
    add_device_work();
    sort();
    spread();
    return std::move(result_);
  }

 private:
  KinetoSlice& add(std::uint64_t begin_ns, std::uint64_t end_ns, SliceKind kind,
                   std::string_view category, std::uint32_t tid, std::string name) {
    return result_.slices.emplace_back(KinetoSlice{.begin_ns = begin_ns,
                                                   .end_ns = std::max(end_ns, begin_ns + 1),
                                                   .pid = facts_.pid,
                                                   .tid = tid,
                                                   .kind = kind,
                                                   .category = category,
                                                   .name = std::move(name)});
  }

  // A run that recorded steps alone has no windows: then they are all there is to show. Where a
  // step begins as another ends, that one is 1 ns shorter: readers add ts and dur as doubles, and
  // find touching steps to overlap.
  void add_steps() {
    const auto& steps = session_.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!session_.windows.empty() && !in_complete_window(session_, steps[i])) continue;
      const bool touches = i + 1 < steps.size() && steps[i + 1].begin_ns == steps[i].end_ns;
      const bool has_length = steps[i].end_ns > steps[i].begin_ns;
      add(steps[i].begin_ns, steps[i].end_ns - (touches && has_length ? 1 : 0),
          SliceKind::annotation, "user_annotation", facts_.trainer_id,
          fmt::format("ProfilerStep#{}", steps[i].step));
    }
  }

  void add_spans() {
    const Span* sample = nullptr;  // the one that the following stages are of
    for (const Span& span : session_.spans) {
      const Kind kind = session_.kind(span);
      if (kind == Kind::mark || kind == Kind::counter) continue;
      if (kind == Kind::sample) sample = &span;
      KinetoSlice& slice = add_span(span, kind);
      const bool is_of_sample = sample != nullptr && sample->thread == span.thread &&
                                sample->begin_ns <= span.begin_ns && span.end_ns <= sample->end_ns;
      if (kind == Kind::sample || (kind == Kind::stage && is_of_sample))
        slice.args = ticket_args(session_, sample->arg);
      if (kind == Kind::wait) slice.args = fmt::format("\"batch\": {}", span.arg);
      if (kind == Kind::copy) slice.args = fmt::format("\"bytes\": {}", span.arg);
      if (kind == Kind::call) slice.args = call_args(session_, span.arg);
    }
  }

  // What other threads than the trainer's do has a category of its own: readers count annotations
  // and ops of every thread as work of the CPU in the step.
  KinetoSlice& add_span(const Span& span, Kind kind) {
    const std::uint32_t tid = session_.threads[span.thread].system;
    const bool is_loading = kind == Kind::sample || kind == Kind::stage || kind == Kind::idle;
    if (is_loading || (span.thread != facts_.trainer && kind != Kind::call))
      return add(span.begin_ns, span.end_ns, SliceKind::loader, "loader", tid,
                 session_.name(span.name));
    if (kind == Kind::call || kind == Kind::host_api)
      return add(span.begin_ns, span.end_ns, SliceKind::op, "cpu_op", tid,
                 session_.name(span.name));
    return add(span.begin_ns, span.end_ns, SliceKind::annotation, "user_annotation", tid,
               kind == Kind::wait ? std::string(data_wait) : session_.name(span.name));
  }

  void add_parts() {
    first_part_ = result_.slices.size();
    for (const GraphPart& part : plan_.parts) {
      std::string title = call_title(session_, part.call);
      if (title.empty()) title = fmt::format("call {}", part.call);
      add(part.begin_ns, part.end_ns, SliceKind::op, "cpu_op", part.thread, std::move(title)).args =
          call_args(session_, part.call);
    }
  }

  void add_host_calls() {
    first_call_ = result_.slices.size();
    for (const HostCall& call : plan_.calls) {
      KinetoSlice& slice = add(call.begin_ns, call.end_ns, SliceKind::runtime, "cuda_runtime",
                               call.thread, call.name);
      slice.args = callback_args(call.name) + fmt::format("\"correlation\": {}", call.correlation);
      slice.correlation = call.correlation;
      slice.has_flow = call.launches;
    }
    for (const Activity& activity : session_.activities)
      if (activity.what == What::overhead && has_times(activity))
        add(activity.start_ns, activity.end_ns, SliceKind::overhead, "overhead", 0,
            session_.name(activity.name))
            .pid = -1;
  }

  static auto key(const KinetoSlice& slice) {
    return std::tuple(slice.begin_ns, ~slice.end_ns, slice.kind);
  }

  // Gives annotations and ops their numbers by time, and runtime calls that of the innermost op on
  // their thread, or of the innermost annotation when there is none.
  void number() {
    std::vector<std::size_t> order(result_.slices.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return key(result_.slices[a]) < key(result_.slices[b]);
    });
    std::map<std::uint32_t, std::vector<std::size_t>> open;  // by thread, outermost first
    std::uint64_t next = 1;
    for (const std::size_t i : order) {
      KinetoSlice& slice = result_.slices[i];
      if (slice.kind != SliceKind::annotation && slice.kind != SliceKind::op &&
          slice.kind != SliceKind::runtime)
        continue;
      auto& stack = open[slice.tid];
      std::erase_if(
          stack, [&](std::size_t outer) { return result_.slices[outer].end_ns <= slice.begin_ns; });
      if (slice.kind == SliceKind::runtime) {
        slice.external_id = owner(slice, stack);
      } else {
        slice.external_id = next++;
        stack.push_back(i);
      }
    }
    for (std::size_t k = 0; k < plan_.calls.size(); ++k)
      if (const auto part = plan_.calls[k].part; part.has_value())
        result_.slices[first_call_ + k].external_id =
            result_.slices[first_part_ + *part].external_id;
  }

  // By the call's middle: CUPTI's clock and the host's agree to less than a us, not to the ns.
  std::uint64_t owner(const KinetoSlice& call, const std::vector<std::size_t>& stack) const {
    std::uint64_t annotation = 0;
    for (auto it = stack.rbegin(); it != stack.rend(); ++it) {
      const KinetoSlice& outer = result_.slices[*it];
      if (outer.end_ns < call.begin_ns + (call.end_ns - call.begin_ns) / 2) continue;
      if (outer.kind == SliceKind::op) return outer.external_id;
      if (annotation == 0) annotation = outer.external_id;
    }
    return annotation;
  }

  void add_device_work() {
    std::map<std::uint64_t, std::uint64_t> external_ids;  // by correlation
    for (std::size_t k = 0; k < plan_.calls.size(); ++k)
      external_ids[plan_.calls[k].correlation] = result_.slices[first_call_ + k].external_id;
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      if (plan_.correlations[i] == 0) continue;
      KinetoSlice& slice = add(activity.start_ns, activity.end_ns, SliceKind::device,
                               activity.what == What::copy  ? "gpu_memcpy"
                               : activity.what == What::set ? "gpu_memset"
                                                            : "kernel",
                               stream_of(activity), activity_name(session_, activity));
      slice.pid = activity.device;
      slice.correlation = plan_.correlations[i];
      slice.external_id = external_ids[slice.correlation];
      slice.args = work_args(session_, activity, slice.correlation);
      slice.has_flow = true;
    }
  }

  void sort() {
    std::stable_sort(result_.slices.begin(), result_.slices.end(),
                     [](const KinetoSlice& a, const KinetoSlice& b) { return key(a) < key(b); });
  }

  // Overlapping slices of a track go to tracks of their own, whose numbers nobody else has.
  void spread() {
    std::uint32_t highest = 0;
    for (const KinetoSlice& slice : result_.slices) highest = std::max(highest, slice.tid);
    std::uint32_t next = (highest / 1000 + 1) * 1000;
    std::map<std::pair<std::int64_t, std::uint32_t>, Lanes> tracks;
    std::map<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>, std::uint32_t> tids;
    for (KinetoSlice& slice : result_.slices) {
      const Nesting nesting = slice.kind == SliceKind::device ? Nesting::none : Nesting::allowed;
      const std::uint32_t lane = tracks.try_emplace({slice.pid, slice.tid}, nesting)
                                     .first->second.take(slice.begin_ns, slice.end_ns);
      if (lane == 0) continue;
      const auto [found, is_new] = tids.try_emplace({slice.pid, slice.tid, lane}, next);
      if (is_new) result_.lanes[{slice.pid, next++}] = {slice.tid, lane + 1};
      slice.tid = found->second;
    }
  }

  const Session& session_;
  const TraceFacts& facts_;
  LaunchPlan plan_;
  KinetoSlices result_;
  std::size_t first_part_ = 0, first_call_ = 0;  // in result_.slices, before it is sorted
};

}  // namespace

KinetoSlices kineto_slices(const Session& session, const TraceFacts& facts,
                           const KinetoOptions& options) {
  return Builder(session, facts, options).run();
}

}  // namespace warpstep::profiler
