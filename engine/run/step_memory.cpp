#include "engine/run/step_memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/text.h"
#include "engine/run/store.h"

namespace warpstep {

void store_sums_like_parameters(Graph& graph) {
  for (const Parameter& parameter : graph.parameters)
    for (const int kept : {parameter.accumulator, parameter.average})
      if (kept >= 0) graph.value(kept).layout = graph.value(parameter.value).layout;
}

// Two lanes keep some values alive longer, so they are used only below a limit of memory.
LanePlan plan_lanes(const Graph& graph, const Backend& backend,
                    std::span<const std::size_t> workspaces) {
  constexpr double affordable = 1.25;
  constexpr std::size_t small_bytes = std::size_t{256} << 20;
  LanePlan one{one_lane(graph), {}};
  if (backend.has_side_lanes()) one.lanes = with_exchange_lane(std::move(one.lanes), graph);
  one.memory = plan_memory(graph, workspaces, one.lanes);
  if (!backend.has_side_lanes()) return one;
  LanePlan two{with_exchange_lane(two_lanes(graph), graph), {}};
  if (!two.lanes.used(Lanes::weight_gradients)) return one;
  two.memory = plan_memory(graph, workspaces, two.lanes);
  const auto limit = static_cast<double>(one.memory.arena_bytes) * affordable;
  const std::size_t wider = two.memory.arena_bytes;
  return wider > small_bytes && static_cast<double>(wider) > limit ? one : two;
}

namespace {

// A gradient so far has the place of the gradient that it becomes.
bool has_own_place(const Graph& graph, int id) {
  const Value& value = graph.value(id);
  return value.role != Role::gradient || value.owner < 0 ||
         graph.parameters[idx(value.owner)].gradient == id;
}

// Calls visit(value) for the persistent values of a Store.
template <class Visit>
void for_each_kept(const Graph& graph, Visit visit) {
  for (int id = 0; id < static_cast<int>(graph.values.size()); ++id)
    if (is_persistent(graph.value(id).role) && has_own_place(graph, id)) visit(graph.value(id));
}

}  // namespace

std::size_t persistent_bytes(const Graph& graph) {
  std::size_t bytes = 0;
  for_each_kept(graph, [&](const Value& value) {
    const std::size_t ranks = value.role == Role::moment ? idx(graph.shards.ranks) : 1;
    bytes += align_up(value.layout.bytes / ranks);
  });
  return bytes;
}

namespace {

std::string size(std::size_t bytes) {
  return size_text(static_cast<double>(bytes));
}

std::string peak_text(const Graph& graph, const MemoryPlan& plan) {
  constexpr std::size_t named = 3;
  std::string largest;
  const std::vector<int> alive = plan.alive_at(plan.peak_node);
  for (std::size_t i = 0; i < std::min(named, alive.size()); ++i) {
    const MemoryPlan::Buffer& buffer = plan.buffers[idx(alive[i])];
    largest +=
        fmt::format("{}{} ({})", i == 0 ? "" : ", ", buffer.name, size(buffer.lifetime.bytes));
  }
  return fmt::format("{} is the peak with {} alive, the largest values are {}",
                     graph.nodes[idx(plan.peak_node)].title(), size(plan.bound_bytes), largest);
}

std::size_t bytes_of(const Graph& graph, int id) {
  return id < 0 ? 0 : graph.value(id).layout.bytes;
}

// Bytes of a parameter with all that is stored for it.
std::size_t kept_bytes(const Graph& graph, const Parameter& parameter) {
  std::size_t bytes = bytes_of(graph, parameter.value) + bytes_of(graph, parameter.gradient) +
                      bytes_of(graph, parameter.copy) + bytes_of(graph, parameter.accumulator) +
                      bytes_of(graph, parameter.average);
  for (const int moment : parameter.moments) bytes += bytes_of(graph, moment);
  return bytes;
}

std::string persistent_text(const Graph& graph) {
  constexpr std::array<std::pair<Role, const char*>, 7> kinds{
      {{Role::parameter, "parameters"},
       {Role::gradient, "gradients"},
       {Role::moment, "moments of the optimiser"},
       {Role::copy, "16-bit copies"},
       {Role::accumulator, "sums of gradients"},
       {Role::average, "averages of the weights"},
       {Role::buffer, "buffers"}}};
  std::string text;
  for (const auto& [role, plural] : kinds) {
    std::size_t bytes = 0;
    for_each_kept(graph, [&](const Value& value) {
      if (value.role == role) bytes += value.layout.bytes;
    });
    if (bytes > 0) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", plural, size(bytes));
  }
  if (graph.parameters.empty()) return text;
  const Parameter& largest = *std::ranges::max_element(
      graph.parameters, {},
      [&](const Parameter& parameter) { return kept_bytes(graph, parameter); });
  return fmt::format("{} persist between steps, {} of that for {}", text,
                     size(kept_bytes(graph, largest)), largest.name);
}

}  // namespace

std::string memory_text(const Graph& graph, const MemoryPlan& plan) {
  constexpr std::size_t little = 10;  // one of the two is left out below 1/10 of the other
  const std::size_t kept = persistent_bytes(graph);
  const std::size_t peak = plan.buffers.empty() ? 0 : plan.bound_bytes;
  std::string text;
  if (kept > 0 && kept >= peak / little) text = persistent_text(graph);
  if (peak > 0 && peak >= kept / little)
    text += (text.empty() ? "" : "; ") + peak_text(graph, plan);
  return text.empty() ? "nothing is planned" : text;
}

std::size_t slot_bytes(const Graph& graph) {
  std::size_t bytes = 0;
  for (const int id : graph.inputs)
    if (graph.value(id).role == Role::input) bytes += align_up(graph.value(id).layout.bytes);
  return bytes;
}

namespace {

void share_layouts(Graph& graph, const Graph& other) {
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter &mine = graph.parameters[p], &theirs = other.parameters[p];
    graph.value(mine.value).layout = other.value(theirs.value).layout;
    if (mine.copy >= 0) graph.value(mine.copy).layout = other.value(theirs.copy).layout;
  }
}

}  // namespace

StepMemory plan_step(Graph graph, const Backend& backend, const Graph* shares) {
  const OnlyPlanning planning(backend);
  StepMemory step;
  if (shares) share_layouts(graph, *shares);
  backend.choose_layouts(graph);
  store_sums_like_parameters(graph);
  std::vector<std::size_t> workspaces(graph.nodes.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (!is_view(graph.nodes[n].op))
      workspaces[n] = backend.bind(graph, graph.nodes[n])->workspace_bytes();
  step.plan = plan_lanes(graph, backend, workspaces).memory;
  if (!shares) step.persistent_bytes = persistent_bytes(graph);
  step.input_bytes = slot_bytes(graph);
  step.graph = std::move(graph);
  return step;
}

}  // namespace warpstep
