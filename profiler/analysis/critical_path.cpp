#include "profiler/analysis/critical_path.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/contention.h"

namespace warpstep::profiler {
namespace {

// Two activities of a stream that follow each other within this are taken for a chain: a kernel
// that depends on the one before it starts some us later.
constexpr std::uint64_t chain_gap_ns = 5'000;

const char* bound_of(const Activity& activity) {
  return activity.what == What::copy || activity.what == What::set ? "copy" : "kernel";
}

}  // namespace

struct PathWalk::Walk {
  std::uint64_t begin_ns = 0, now_ns = 0;
  const Activity* activity = nullptr;  // the walk is at its end, or on the host: null
  std::vector<PathEdge> edges;         // last to first

  // From `from_ns`, or the step's begin, to now.
  void back_to(std::uint64_t from_ns, std::string_view bound, std::string_view what) {
    from_ns = std::max(from_ns, begin_ns);
    if (from_ns >= now_ns) return;
    const bool continues = !edges.empty() && edges.back().bound == bound &&
                           edges.back().what == what && bound != "kernel" && bound != "copy";
    if (continues)
      edges.back().begin_ns = from_ns;
    else
      edges.push_back({from_ns, now_ns, std::string(bound), std::string(what)});
    now_ns = from_ns;
  }
};

PathWalk::PathWalk(const View& view)
    : view_(view), session_(view.session), host_(host_timeline(view)) {
  const bool skips_graphs = has_graph_kernels(session_);
  for (const Activity& a : session_.activities)
    if (is_on_device(a) && a.start_ns < a.end_ns && !(a.what == What::graph && skips_graphs))
      by_start_.push_back(&a);
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, const Activity*> on_stream;
  for (const Activity* a : by_start_) {
    const Activity* before = latest_.empty() ? nullptr : latest_.back();
    latest_.push_back(before != nullptr && before->end_ns > a->end_ns ? before : a);
    const Activity*& last = on_stream[{a->device, a->context, a->stream}];
    if (last != nullptr) previous_[a] = last;
    if (last == nullptr || last->end_ns <= a->end_ns) last = a;
  }
  by_end_ = by_start_;
  std::stable_sort(by_end_.begin(), by_end_.end(),
                   [](const Activity* a, const Activity* b) { return a->end_ns < b->end_ns; });
}

// Of what began before: the one that runs still, else the one that ended last.
const Activity* PathWalk::running_or_last(std::uint64_t at_ns) const {
  const auto after =
      std::lower_bound(by_start_.begin(), by_start_.end(), at_ns,
                       [](const Activity* a, std::uint64_t at) { return a->start_ns < at; });
  if (after == by_start_.begin()) return nullptr;
  return latest_[static_cast<std::size_t>(after - by_start_.begin()) - 1];
}

const Activity* PathWalk::last_ended(std::uint64_t at_ns) const {
  const auto after =
      std::upper_bound(by_end_.begin(), by_end_.end(), at_ns,
                       [](std::uint64_t at, const Activity* a) { return at < a->end_ns; });
  return after == by_end_.begin() ? nullptr : *std::prev(after);
}

const Activity* PathWalk::before_on_stream(const Activity& activity) const {
  const auto found = previous_.find(&activity);
  const bool is_before = found != previous_.end() && found->second->end_ns <= activity.start_ns;
  return is_before ? found->second : nullptr;
}

// What the thread did until now. Waiting for the device, it hands over to what it waited for; doing
// nothing known, to what the device did meanwhile.
void PathWalk::on_host(Walk& walk) const {
  const auto after =
      std::lower_bound(host_.begin(), host_.end(), walk.now_ns,
                       [](const HostSlice& s, std::uint64_t at) { return s.begin_ns < at; });
  const HostSlice* slice = after == host_.begin() ? nullptr : &*std::prev(after);
  const std::uint64_t host_end = slice == nullptr ? 0 : std::min(slice->end_ns, walk.now_ns);
  if (host_end == walk.now_ns) {
    const Activity* awaited = slice->bound == "sync" ? last_ended(walk.now_ns) : nullptr;
    if (awaited != nullptr && awaited->end_ns > slice->begin_ns) {
      walk.back_to(awaited->end_ns, "sync", session_.name(slice->name));
      walk.activity = awaited;
    } else {
      walk.back_to(slice->begin_ns, slice->bound, session_.name(slice->name));
    }
    return;
  }
  const Activity* work = running_or_last(walk.now_ns);
  const bool is_later = work != nullptr && work->end_ns > host_end;
  walk.back_to(is_later ? std::min(work->end_ns, walk.now_ns) : host_end, "idle", "");
  if (is_later) walk.activity = work;
}

// An activity began when the one before it on its stream had ended, when one of another stream had,
// or when it had been launched: the latest of these. Of one that still ran then, as where a kernel
// may begin before the end of the one it depends on, the begin counts.
void PathWalk::on_device(Walk& walk) const {
  const Activity& activity = *walk.activity;
  walk.activity = nullptr;
  walk.back_to(activity.start_ns, bound_of(activity), session_.name(activity.name));
  const Activity* before = before_on_stream(activity);
  if (before == nullptr || activity.start_ns - before->end_ns > chain_gap_ns) {
    const Activity* other = running_or_last(activity.start_ns);
    if (other != nullptr && (before == nullptr || other->end_ns > before->end_ns)) before = other;
  }
  const auto enabled_ns = [&] {
    return before->end_ns > activity.start_ns ? before->start_ns : before->end_ns;
  };
  const Activity* launch = view_.launches.find(activity.correlation);
  if (launch != nullptr && launch->start_ns > activity.start_ns) launch = nullptr;  // clocks differ
  if (launch != nullptr && (before == nullptr || launch->start_ns >= enabled_ns())) {
    walk.back_to(launch->start_ns, "launch", session_.name(launch->name));
  } else if (before != nullptr) {
    between(std::max(before->end_ns, walk.begin_ns), walk);
    walk.activity = before;
  }
}

// Back to `from_ns`, when an activity of the device ended: it idles, or others run.
void PathWalk::between(std::uint64_t from_ns, Walk& walk) const {
  while (walk.now_ns > from_ns) {
    const Activity& other = *running_or_last(walk.now_ns);
    walk.back_to(std::max(other.end_ns, from_ns), "idle", "between activities of the device");
    if (walk.now_ns > from_ns)
      walk.back_to(std::max(other.start_ns, from_ns), bound_of(other), session_.name(other.name));
  }
}

std::vector<PathEdge> PathWalk::edges(const Interval& step) const {
  Walk walk{.begin_ns = step.begin_ns, .now_ns = step.end_ns};
  while (walk.now_ns > walk.begin_ns) walk.activity == nullptr ? on_host(walk) : on_device(walk);
  std::reverse(walk.edges.begin(), walk.edges.end());
  return std::move(walk.edges);
}

namespace {

// The number of the first step of the last complete window.
std::uint64_t begin_of_last_window(const Session& session, const StepIndex& steps) {
  const std::uint64_t last = session.steps[steps.step(steps.size() - 1)].step;
  std::uint64_t first = 0;
  for (const Window& window : session.windows)
    if (window.complete != 0 && window.first_step <= last)
      first = std::max(first, window.first_step);
  return first;
}

// Of lengths in the middle; of equal ones, the first.
std::size_t median_step(const Session& session, const StepIndex& steps) {
  std::vector<std::size_t> order;
  const std::uint64_t first = begin_of_last_window(session, steps);
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (session.steps[steps.step(i)].step >= first) order.push_back(i);
  const auto length = [&](std::size_t i) {
    return steps.times()[i].end_ns - steps.times()[i].begin_ns;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  const std::uint64_t median = length(order[(order.size() - 1) / 2]);
  return *std::find_if(order.begin(), order.end(),
                       [&](std::size_t i) { return length(i) == median; });
}

// As the breakdown of a host has it.
Category category_on_host(const PathEdge& edge) {
  if (is_communication(edge.what)) return Category::communication;
  if (edge.bound == "kernel") return Category::kernel;
  if (edge.bound == "launch") return Category::runtime;
  if (edge.bound == "data") return Category::data;
  if (edge.bound == "sync") return Category::sync;
  return edge.bound == "idle" ? Category::other : Category::cpu;
}

using Bounds = std::map<std::string, double>;  // ns

// Adds a step's edges without the time in which the thread had no core. Returns that time.
double add_on_host(const std::vector<PathEdge>& edges, std::uint64_t core_wait_ns, Bounds& bounds) {
  Parts before{};
  const auto at = [&](const PathEdge& edge) {
    return static_cast<std::size_t>(category_on_host(edge));
  };
  for (const PathEdge& edge : edges) before[at(edge)] += edge.end_ns - edge.begin_ns;
  Parts after = before;
  take_core_wait(after, core_wait_ns, true);
  for (const PathEdge& edge : edges)
    if (const double all = static_cast<double>(before[at(edge)]); all > 0)
      bounds[edge.bound] += static_cast<double>(edge.end_ns - edge.begin_ns) *
                            static_cast<double>(after[at(edge)]) / all;
  const auto taken = static_cast<double>(after[static_cast<std::size_t>(Category::core_wait)]);
  if (taken > 0) bounds["core wait"] += taken;
  return taken;
}

}  // namespace

CriticalPath critical_path(const View& view) {
  CriticalPath path;
  const Session& session = view.session;
  const StepIndex& steps = view.recorded;
  if (steps.size() == 0) return path;
  const std::size_t median = median_step(session, steps);
  const PathWalk walk(view);
  // A device's work continues while the host's thread has no core: there a wait need not be in the
  // path.
  std::vector<std::uint64_t> waits;
  if (session.computes_on_host()) waits = core_waits(view);
  Bounds by_bound;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::vector<PathEdge> edges = walk.edges(steps.times()[i]);
    double without_core = 0;
    if (!waits.empty())
      without_core = add_on_host(edges, waits[i], by_bound);
    else
      for (const PathEdge& edge : edges)
        by_bound[edge.bound] += static_cast<double>(edge.end_ns - edge.begin_ns);
    if (i != median) continue;
    path.edges = std::move(edges);
    path.core_wait_ns = without_core;
  }
  path.step = session.steps[steps.step(median)].step;
  const double n = static_cast<double>(steps.size()), all = static_cast<double>(steps.total_ns());
  for (const auto& [bound, ns] : by_bound) path.shares.push_back({bound, ns / n, ns / all});
  std::stable_sort(path.shares.begin(), path.shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.ns > b.ns; });
  return path;
}

}  // namespace warpstep::profiler
