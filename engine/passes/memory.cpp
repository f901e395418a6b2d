#include "engine/passes/memory.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/types.h"

namespace warpstep {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t enough_looks = 50'000'000;      // of Search: about 0.4 s
constexpr std::size_t promotion_looks = 300'000'000;  // of all starts; each has its share
constexpr std::size_t start_count = 7;

using Order = std::vector<std::size_t>;

enum class Fit { tightest, lowest };  // which of the gaps that are large enough

// Orders of placing, tried one after the other; the smallest placement is kept.
class Search {
 public:
  explicit Search(std::span<const Lifetime> lifetimes)
      : lifetimes_(lifetimes), bound_(live_bound(lifetimes)), best_{{}, no_limit} {
    for (const Lifetime& life : lifetimes) bytes_.push_back(align_up(life.bytes));
    for (Placement* placement : {&now_, &next_}) placement->offsets.resize(lifetimes.size());
  }

  bool done() const { return best_.bytes == bound_; }
  void promote_highest(Order order);
  void climb();
  const Placement& best() {
    best_.looks = looks_;
    return best_;
  }

 private:
  // Takes the lifetimes in the given order and puts each into a gap among those already placed.
  // False, and unfinished, if that takes more than `limit` bytes.
  bool place(const Order& order, Fit fit, std::size_t limit, Placement& placement);
  std::size_t gap(std::size_t i, Fit fit, const Placement& placement);
  bool meet(std::size_t i, std::size_t j) const {
    return lifetimes_[i].first <= lifetimes_[j].last && lifetimes_[j].first <= lifetimes_[i].last;
  }
  std::size_t end(const Placement& placement, std::size_t i) const {
    return placement.offsets[i] + bytes_[i];
  }
  void keep_better(const Placement& placement);
  void climb_from(Order order, std::mt19937& random);
  Order pillars(const Placement& placement) const;

  std::span<const Lifetime> lifetimes_;
  std::vector<std::size_t> bytes_;  // of each, aligned
  std::size_t bound_;
  Order by_offset_;  // placed so far
  Placement now_, next_, best_;
  std::vector<std::pair<std::size_t, Order>> starts_;  // bytes and order, to climb from
  std::size_t looks_ = 0;                              // at other buffers: what searching costs
};

std::size_t Search::gap(std::size_t i, Fit fit, const Placement& placement) {
  std::size_t top = 0, best = 0, best_gap = no_limit;
  for (const std::size_t other : by_offset_) {
    ++looks_;
    if (!meet(i, other)) continue;
    const std::size_t offset = placement.offsets[other];
    if (offset >= top + bytes_[i] && offset - top < best_gap) {
      if (fit == Fit::lowest) return top;
      best = top;
      best_gap = offset - top;
    }
    top = std::max(top, offset + bytes_[other]);
  }
  return best_gap == no_limit ? top : best;
}

bool Search::place(const Order& order, Fit fit, std::size_t limit, Placement& placement) {
  by_offset_.clear();
  placement.bytes = 0;
  for (const std::size_t i : order) {
    const std::size_t offset = gap(i, fit, placement);
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + bytes_[i]);
    if (placement.bytes > limit) return false;
    const auto at =
        std::upper_bound(by_offset_.begin(), by_offset_.end(), offset,
                         [&](std::size_t o, std::size_t p) { return o < placement.offsets[p]; });
    by_offset_.insert(at, i);
  }
  return true;
}

void Search::keep_better(const Placement& placement) {
  if (placement.bytes < best_.bytes) best_ = placement;
}

// Places in `order`, and again and again with the buffer that ends highest moved to the front,
// where it finds the most room. A placement of very many buffers costs all that may be spent, so
// that the first may be the only one.
void Search::promote_highest(Order order) {
  constexpr int rounds = 15;
  const std::size_t share = promotion_looks / start_count * (starts_.size() + 1);
  const auto goes_on = [&] { return !done() && (looks_ < share || best_.bytes == no_limit); };
  std::pair start{no_limit, order};
  for (int round = 0; round < rounds && goes_on(); ++round) {
    for (const Fit fit : {Fit::lowest, Fit::tightest}) {
      if (!goes_on()) break;
      place(order, fit, no_limit, now_);
      keep_better(now_);
      if (now_.bytes < start.first) start = {now_.bytes, order};
    }
    const auto highest =
        std::max_element(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return end(now_, a) < end(now_, b); });
    std::rotate(order.begin(), highest, highest + 1);
  }
  starts_.push_back(std::move(start));
}

// The buffers that end highest, what they lie on, and so on down to the bottom: without a change
// among these the placement does not get smaller.
Order Search::pillars(const Placement& placement) const {
  Order found;
  std::vector<bool> seen(bytes_.size());
  const auto take = [&](std::size_t i) {
    if (!seen[i]) found.push_back(i);
    seen[i] = true;
  };
  for (std::size_t i = 0; i < bytes_.size(); ++i)
    if (end(placement, i) == placement.bytes) take(i);
  for (std::size_t k = 0; k < found.size(); ++k)  // NOLINT(modernize-loop-convert): `found` grows
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (bytes_[i] > 0 && end(placement, i) == placement.offsets[found[k]] && meet(i, found[k]))
        take(i);
  return found;
}

// Moves one of the pillars ahead in the order, keeps what is not worse, until the bound is met, the
// search has cost enough or nothing got better for a while. Placing lowest first, some order gives
// the least placement: that of its offsets.
void Search::climb_from(Order order, std::mt19937& random) {
  constexpr int patience = 1500;  // rounds without a gain; longer climbs find less than others
  const auto below = [&](std::size_t n) { return random() % n; };
  place(order, Fit::lowest, no_limit, now_);
  Order candidates = pillars(now_);
  std::size_t least = now_.bytes;
  int since_gain = -1;
  while (++since_gain < patience && looks_ < enough_looks && !done()) {
    Order changed = order;
    const auto from =
        std::find(changed.begin(), changed.end(), candidates[below(candidates.size())]);
    const auto to = changed.begin() + static_cast<std::ptrdiff_t>(below(changed.size()));
    if (below(2) == 0)
      std::iter_swap(from, to);
    else if (to < from)
      std::rotate(to, from, from + 1);
    else
      std::rotate(from, from + 1, to + 1);
    // Now and then a little worse: out of a dead end.
    const std::size_t limit = below(50) == 0 ? now_.bytes + now_.bytes / 50 : now_.bytes;
    if (!place(changed, Fit::lowest, limit, next_)) continue;
    order = std::move(changed);
    std::swap(now_, next_);
    keep_better(now_);
    candidates = pillars(now_);
    if (now_.bytes >= least) continue;
    least = now_.bytes;
    since_gain = 0;
  }
}

// Climbs from what each start came to, the best first, each time with other random numbers.
void Search::climb() {
  constexpr int turns = 640;
  std::mt19937 random(1);  // the standard fixes its numbers, not those of its distributions
  std::stable_sort(starts_.begin(), starts_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (int turn = 0; turn < turns && looks_ < enough_looks && !done(); ++turn)
    climb_from(starts_[static_cast<std::size_t>(turn) % starts_.size()].second, random);
}

}  // namespace

std::vector<std::size_t> live_bytes(std::span<const Lifetime> lifetimes) {
  int end = 0;
  for (const Lifetime& life : lifetimes) end = std::max(end, life.last + 1);
  std::vector<std::size_t> live(idx(end) + 1);  // first what each node changes, modulo 2^64
  for (const Lifetime& life : lifetimes) {
    if (life.last < life.first) continue;
    live[idx(life.first)] += align_up(life.bytes);
    live[idx(life.last + 1)] -= align_up(life.bytes);
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

std::size_t live_bound(std::span<const Lifetime> lifetimes) {
  const std::vector<std::size_t> live = live_bytes(lifetimes);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

Placement place(std::span<const Lifetime> lifetimes) {
  if (lifetimes.empty()) return {};
  const std::vector<std::size_t> live = live_bytes(lifetimes);
  const auto peak = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  const auto first = [&](std::size_t i) { return lifetimes[i].first; };
  const auto last = [&](std::size_t i) { return lifetimes[i].last; };
  const auto span = [&](std::size_t i) { return last(i) - first(i); };
  const auto bytes = [&](std::size_t i) { return lifetimes[i].bytes; };
  const auto area = [&](std::size_t i) { return static_cast<double>(bytes(i)) * (span(i) + 1); };
  const auto peaks = [&](std::size_t i) { return first(i) <= peak && peak <= last(i); };
  // No order is best for every graph: try several, and go on from the best.
  Search search(lifetimes);
  Order order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto start = [&](auto before) {
    std::stable_sort(order.begin(), order.end(), before);
    search.promote_highest(order);
  };
  start([&](std::size_t a, std::size_t b) { return bytes(a) > bytes(b); });
  start([&](std::size_t a, std::size_t b) { return area(a) > area(b); });
  start([&](std::size_t a, std::size_t b) { return span(a) > span(b); });
  start([&](std::size_t a, std::size_t b) { return first(a) < first(b); });
  start([&](std::size_t a, std::size_t b) { return last(a) > last(b); });
  start([&](std::size_t a, std::size_t b) {  // the peak's own first, largest at the bottom
    return peaks(a) != peaks(b) ? peaks(a) : bytes(a) > bytes(b);
  });
  start([&](std::size_t a, std::size_t b) {
    return peaks(a) != peaks(b) ? peaks(a) : span(a) > span(b);
  });
  search.climb();
  return search.best();
}

namespace {

// Which value's memory each value is: a view is what it views.
std::vector<int> storage_of_values(const Graph& graph) {
  std::vector<int> storage(graph.values.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Node& node : graph.nodes)
    if (is_view(node.op)) storage[idx(node.out[0])] = storage[idx(node.in[0])];
  return storage;
}

// The last node during which each value's memory is in use, by nodes of any lane or of side lanes.
struct LastUses {
  std::vector<int> any, side;
};

LastUses last_uses(const Graph& graph, const std::vector<int>& storage, const Lanes& lanes) {
  LastUses uses{std::vector<int>(graph.values.size(), -1),
                std::vector<int>(graph.values.size(), -1)};
  std::vector<int>& last = uses.any;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const auto* ids : {&graph.nodes[n].in, &graph.nodes[n].out})
      for (const int id : *ids) {
        const std::size_t at = idx(storage[idx(id)]);
        const int busy = lanes.busy_until(static_cast<int>(n));
        last[at] = std::max(last[at], busy);
        if (lanes.lane[n] != 0) uses.side[at] = std::max(uses.side[at], busy);
      }
  // Read when the step is over; of a training step, which reports, only what it reports.
  for (const int id : {graph.loss, graph.correct, graph.report < 0 ? graph.logits : -1})
    if (id >= 0) last[idx(storage[idx(id)])] = static_cast<int>(graph.nodes.size()) - 1;
  return uses;
}

// The buffer of an input of `node` that its output `number` may take over, or -1. Not one that a
// side lane may still use while the node runs: it is waited for only after that. Nor one that is
// another operand's too, unless that may be taken over as well: its reads would meet the output.
int inherited_buffer(const Graph& graph, const Node& node, int number, const MemoryPlan& plan,
                     const LastUses& last) {
  if (number != in_place_output(node.op)) return -1;
  const Value& out = graph.value(node.out[idx(number)]);
  const int self = static_cast<int>(&node - graph.nodes.data());
  const std::vector<int> candidates = in_place_inputs(node.op);
  // Whether an operand that the op may read at any index lies in this memory.
  const auto is_read_elsewhere = [&](int storage) {
    for (std::size_t i = 0; i < node.in.size(); ++i)
      if (plan.storage_of_value[idx(node.in[i])] == storage &&
          std::ranges::find(candidates, static_cast<int>(i)) == candidates.end())
        return true;
    return false;
  };
  for (const int k : candidates) {
    const bool is_there = k >= 0 && idx(k) < node.in.size();
    // Only some forms of a built-in op have each operand that its traits name.
    if (!is_there && !std::holds_alternative<Custom>(node.op)) continue;
    if (!is_there)
      fail<Error>("{} ({}): in_place_inputs() names operand {} of {}", node.title(), text(node.op),
                  k, node.in.size());
    const int in = node.in[idx(k)];
    const int storage = plan.storage_of_value[idx(in)];
    const int buffer = plan.buffer_of_value[idx(storage)];
    if (buffer < 0 || plan.buffers[idx(buffer)].lifetime.last != self) continue;
    if (last.side[idx(storage)] >= self || is_read_elsewhere(storage)) continue;
    if (graph.value(in).layout.tag == out.layout.tag &&
        graph.value(in).layout.bytes == out.layout.bytes)
      return buffer;
  }
  return -1;
}

void assign_buffers(const Graph& graph, std::span<const std::size_t> workspaces, const Lanes& lanes,
                    MemoryPlan& plan) {
  const LastUses last = last_uses(graph, plan.storage_of_value, lanes);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (std::size_t i = 0; i < node.out.size() && !is_view(node.op); ++i) {
      const int id = node.out[i];
      if (is_persistent(graph.value(id).role)) continue;
      plan.separate_bytes += align_up(graph.value(id).layout.bytes);
      int buffer = inherited_buffer(graph, node, static_cast<int>(i), plan, last);
      if (buffer < 0) {
        buffer = static_cast<int>(plan.buffers.size());
        plan.buffers.push_back(
            {graph.value(id).name, {graph.value(id).layout.bytes, static_cast<int>(n), 0}, 0});
      }
      plan.buffers[idx(buffer)].lifetime.last = last.any[idx(id)];
      plan.buffer_of_value[idx(id)] = buffer;
    }
    if (n < workspaces.size() && workspaces[n] > 0) {
      plan.workspace_of_node[n] = static_cast<int>(plan.buffers.size());
      plan.separate_bytes += align_up(workspaces[n]);
      plan.buffers.push_back(
          {node.title() + " workspace",
           {workspaces[n], static_cast<int>(n), lanes.busy_until(static_cast<int>(n))},
           0});
    }
  }
}

}  // namespace

std::vector<int> MemoryPlan::alive_at(int node) const {
  std::vector<int> alive;
  for (std::size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].lifetime.first <= node && node <= buffers[b].lifetime.last)
      alive.push_back(static_cast<int>(b));
  std::stable_sort(alive.begin(), alive.end(), [&](int a, int b) {
    return buffers[idx(a)].lifetime.bytes > buffers[idx(b)].lifetime.bytes;
  });
  return alive;
}

MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> workspaces,
                       const Lanes& lanes) {
  MemoryPlan plan;
  plan.storage_of_value = storage_of_values(graph);
  plan.buffer_of_value.assign(graph.values.size(), -1);
  plan.workspace_of_node.assign(graph.nodes.size(), -1);
  assign_buffers(graph, workspaces, lanes, plan);
  for (std::size_t id = 0; id < graph.values.size(); ++id)
    plan.buffer_of_value[id] = plan.buffer_of_value[idx(plan.storage_of_value[id])];

  std::vector<Lifetime> lifetimes;
  for (const MemoryPlan::Buffer& buffer : plan.buffers) lifetimes.push_back(buffer.lifetime);
  const Placement placement = place(lifetimes);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    plan.buffers[b].offset = placement.offsets[b];
  plan.arena_bytes = placement.bytes;
  const std::vector<std::size_t> live = live_bytes(lifetimes);
  plan.peak_node = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  plan.bound_bytes = live_bound(lifetimes);
  return plan;
}

}  // namespace warpstep
