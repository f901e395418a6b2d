#include "profiler/export/launches.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <unordered_map>
#include <utility>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

using Indices = std::vector<std::size_t>;  // of activities, by start

class Planner {
 public:
  Planner(const Session& session, const TraceFacts& facts, bool split_graphs)
      : session_(session), facts_(facts), split_graphs_(split_graphs) {}

  LaunchPlan run() {
    gather();
    plan_.correlations.resize(session_.activities.size());
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      if (!has_times(activity)) continue;
      if (activity.what == What::api) add_api(i);
      if (activity.what == What::sync && !api_.contains(activity.correlation)) add_host_call(i, 0);
      if (is_on_device(activity) && !api_.contains(activity.correlation)) add_orphan(i);
    }
    return std::move(plan_);
  }

 private:
  void gather() {
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      next_correlation_ = std::max(next_correlation_, std::uint64_t{activity.correlation} + 1);
      if (!has_times(activity) || activity.correlation == 0) continue;
      if (is_on_device(activity)) work_[activity.correlation].push_back(i);
      if (activity.what != What::api) continue;
      const auto [kept, is_new] = api_.emplace(activity.correlation, i);
      if (!is_new && !is_runtime(kept->second) && is_runtime(i)) kept->second = i;
    }
  }

  bool is_runtime(std::size_t activity) const {
    return session_.name(session_.activities[activity].name).starts_with("cuda");
  }

  void add_host_call(std::size_t index, std::uint64_t correlation, bool launches = false) {
    const Activity& activity = session_.activities[index];
    plan_.calls.push_back({.begin_ns = activity.start_ns,
                           .end_ns = std::max(activity.end_ns, activity.start_ns + 1),
                           .correlation = correlation == 0 ? next_correlation_++ : correlation,
                           .thread = activity.stream,
                           .name = session_.name(activity.name),
                           .launches = launches});
  }

  void add_api(std::size_t index) {
    const Activity& api = session_.activities[index];
    if (api.correlation == 0) return add_host_call(index, 0);
    if (api_.at(api.correlation) != index) return;  // the same launch, recorded by another layer
    const auto found = work_.find(api.correlation);
    if (found == work_.end()) return add_host_call(index, api.correlation);
    const bool is_graph =
        found->second.size() > 1 || session_.activities[found->second[0]].graph_node != 0;
    const bool splits = split_graphs_ && is_graph;
    add_host_call(index, api.correlation, !splits);
    if (splits) return split(plan_.calls.back(), found->second);
    for (const std::size_t work : found->second) plan_.correlations[work] = api.correlation;
  }

  // By value: calls are added.
  void split(const HostCall graph, const Indices& work) {
    const std::uint64_t length = graph.end_ns - graph.begin_ns;
    const auto at = [&](std::size_t k) { return graph.begin_ns + length * k / work.size(); };
    for (std::size_t first = 0, end = 0; first < work.size(); first = end) {
      const auto call = call_of(session_.activities[work[first]]);
      for (end = first + 1; end < work.size();) {
        if (call_of(session_.activities[work[end]]) != call) break;
        ++end;
      }
      std::optional<std::size_t> part;
      if (call.has_value()) {
        part = plan_.parts.size();
        plan_.parts.push_back(
            {at(first), std::max(at(end), at(first) + 1), call.value(), graph.thread});
      }
      for (std::size_t k = first; k < end; ++k)
        add_launch(work[k], at(k), std::max(at(k + 1), at(k) + 1), graph.thread, part);
    }
  }

  void add_orphan(std::size_t work) {
    const std::uint64_t start = session_.activities[work].start_ns;
    const std::uint64_t begin = std::max(start - 1, facts_.base_ns);
    add_launch(work, begin, begin + 1, facts_.trainer_id, std::nullopt);
  }

  void add_launch(std::size_t work, std::uint64_t begin_ns, std::uint64_t end_ns,
                  std::uint32_t thread, std::optional<std::size_t> part) {
    const What what = session_.activities[work].what;
    plan_.correlations[work] = next_correlation_;
    plan_.calls.push_back({.begin_ns = begin_ns,
                           .end_ns = end_ns,
                           .correlation = next_correlation_++,
                           .thread = thread,
                           .name = what == What::copy  ? "cudaMemcpyAsync"
                                   : what == What::set ? "cudaMemsetAsync"
                                                       : "cudaLaunchKernel",
                           .part = part,
                           .launches = true});
  }

  const Session& session_;
  const TraceFacts& facts_;
  bool split_graphs_;
  std::unordered_map<std::uint32_t, Indices> work_;     // by correlation
  std::unordered_map<std::uint32_t, std::size_t> api_;  // the one that is kept, by correlation
  std::uint64_t next_correlation_ = 1;                  // above all of the session's
  LaunchPlan plan_;
};

}  // namespace

LaunchPlan plan_launches(const Session& session, const TraceFacts& facts, bool split_graphs) {
  return Planner(session, facts, split_graphs).run();
}

namespace {

std::string text_or_none(const Json* text) {
  return text != nullptr && text->is_string() ? text->get<std::string>() : std::string{};
}

std::uint32_t trainer_of(const Session& session) {
  for (std::uint32_t i = 0; i < session.threads.size(); ++i)
    if (session.threads[i].name == "main") return i;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::wait || session.kind(span) == Kind::call) return span.thread;
  return 0;
}

std::uint32_t pid_of(const Session& session, std::uint32_t trainer_id) {
  const Json* stamped = fields::member(fields::child(session.stamp, "profiler"), "pid");
  const std::uint64_t pid = stamped != nullptr && stamped->is_number_integer()
                                ? stamped->get<std::uint32_t>()
                                : trainer_id;
  // Readers distinguish devices from processes by this number, so that it must be no device's.
  for (const Device& device : session.devices)
    if (pid == device.id) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::uint32_t>(pid);
}

}  // namespace

TraceFacts trace_facts(const Session& session) {
  TraceFacts facts;
  facts.trainer = trainer_of(session);
  facts.trainer_id = session.threads.empty() ? 1 : session.threads[facts.trainer].system;
  facts.pid = pid_of(session, facts.trainer_id);
  const Json* host = fields::member(session.stamp, "host");
  facts.host =
      text_or_none(host != nullptr && host->is_object() ? fields::member(*host, "name") : host);
  for (char& c : facts.host)  // it becomes part of a file's name
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  if (facts.host.empty()) facts.host = "host";
  facts.base_ns = earliest_ns(session);
  if (!session.clocks.empty())
    facts.realtime_offset_ns = static_cast<std::int64_t>(session.clocks.front().realtime_ns -
                                                         session.clocks.front().monotonic_ns);
  return facts;
}

std::string call_title(const Session& session, std::uint64_t index) {
  const Json* calls = fields::member(session.program, "calls");
  if (calls == nullptr || !calls->is_array() || index >= calls->size()) return {};
  return text_or_none(fields::member((*calls)[index], "title"));
}

std::string counter_name(const Session& session, const Span& counter) {
  const std::string& name = session.name(counter.name);
  return name.starts_with("worker ") ? session.threads[counter.thread].name + ": " + name : name;
}

}  // namespace warpstep::profiler
