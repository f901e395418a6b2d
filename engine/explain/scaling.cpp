#include "engine/explain/scaling.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "engine/core/text.h"

namespace warpstep {
namespace {

// What a rank gives in one exchange, and how often that crosses the link: there and back, or once.
struct Exchanged {
  double bytes = 0;
  int ways = 0;  // 0: none
};

double bytes_of(const Graph& graph, const std::vector<int>& ids) {
  double bytes = 0;
  for (const int id : ids) bytes += static_cast<double>(graph.value(id).type.bytes());
  return bytes;
}

Exchanged exchanged(const Graph& graph, const Node& node, std::int64_t ranks) {
  if (const auto* sum = std::get_if<AllReduce>(&node.op))
    return {bytes_of(graph, node.in), sum->to_owners ? 1 : 2};
  if (std::holds_alternative<AllGather>(node.op)) return {bytes_of(graph, node.in), 1};
  const auto* norm = std::get_if<BatchNorm>(&node.op);
  const auto* grad = std::get_if<BatchNormGrad>(&node.op);
  const std::int64_t of = norm ? (norm->training ? norm->ranks : 1) : grad ? grad->norm.ranks : 1;
  if (of == 1) return {};
  const auto channels = static_cast<double>(graph.value(node.in[0]).type.shape.back());
  return {2 * sizeof(float) * channels * static_cast<double>(ranks), 1};
}

double seconds_of(const Exchanged& what, std::int64_t ranks, const Link& link) {
  const auto r = static_cast<double>(ranks);
  const auto hops = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(ranks - 1)));
  return what.ways *
         ((r - 1) / r * what.bytes / link.bytes_per_second + hops * link.latency_seconds);
}

std::string ms(double seconds) {
  return fmt::format("{:.3f} ms", 1e3 * seconds);
}

// Where the optimiser is sharded, `seconds` is the time of a share of those that `step` has.
double share_factor(const Graph& step, const Node& node, std::int64_t ranks) {
  if (!is_shared_out(node.op) || step.shards.ranks < 2) return 1;
  return static_cast<double>(step.shards.ranks) / static_cast<double>(ranks);
}

// `updates`: else it only accumulates, and leaves out what changes parameters.
ScaledStep scale_one(const Graph& step, const Lanes& lanes,
                     const std::function<double(const Node&)>& seconds, std::int64_t ranks,
                     const Link& link, bool updates) {
  ScaledStep scaled{.ranks = ranks, .exchanges = {}};
  double now = 0, link_free = 0;
  struct Pending {
    int waited_at;
    double end;
  };
  std::vector<Pending> pending;
  const auto wait_until = [&](double end) {
    scaled.exposed += std::max(0.0, end - now);
    now = std::max(now, end);
  };
  for (std::size_t n = 0; n < step.nodes.size(); ++n) {
    const Node& node = step.nodes[n];
    for (const Pending& one : pending)
      if (one.waited_at <= static_cast<int>(n)) wait_until(one.end);
    std::erase_if(pending,
                  [&](const Pending& one) { return one.waited_at <= static_cast<int>(n); });
    if (!updates && runs_once_per_update(node.op)) continue;
    const Exchanged what = exchanged(step, node, ranks);
    const bool only_exchanges =
        std::holds_alternative<AllReduce>(node.op) || std::holds_alternative<AllGather>(node.op);
    if (!only_exchanges) {
      const double own = share_factor(step, node, ranks) * seconds(node);
      scaled.alone += own;
      now += own;
    }
    if (what.ways == 0 || ranks < 2) continue;
    const double begin = std::max(now, link_free);
    const double end = begin + seconds_of(what, ranks, link);
    scaled.exchange += end - begin;
    scaled.exchanges.push_back({node.title(), what.bytes, now, begin, end});
    link_free = end;
    if (lanes.lane[n] == Lanes::exchange)
      pending.push_back({lanes.waited_at[n], end});
    else
      wait_until(end);
  }
  for (const Pending& one : pending) wait_until(one.end);
  return scaled;
}

ScaledStep mean_step(const Graph& step, const Lanes& lanes,
                     const std::function<double(const Node&)>& seconds, std::int64_t ranks,
                     const Link& link) {
  ScaledStep scaled = scale_one(step, lanes, seconds, ranks, link, true);
  scaled.accumulate = step.steps_per_update();
  if (scaled.accumulate == 1) return scaled;
  const ScaledStep other = scale_one(step, lanes, seconds, ranks, link, false);
  const double share = 1 / static_cast<double>(scaled.accumulate);
  scaled.alone = share * scaled.alone + (1 - share) * other.alone;
  scaled.exchange = share * scaled.exchange + (1 - share) * other.exchange;
  scaled.exposed = share * scaled.exposed + (1 - share) * other.exposed;
  return scaled;
}

}  // namespace

ScaledStep scale_step(const Graph& step, const Lanes& lanes,
                      const std::function<double(const Node&)>& seconds, std::int64_t ranks,
                      const Link& link) {
  ScaledStep scaled = mean_step(step, lanes, seconds, ranks, link);
  scaled.of_one_rank = mean_step(step, lanes, seconds, 1, link).alone;
  return scaled;
}

std::string scaling_text(const std::vector<ScaledStep>& steps) {
  const ScaledStep& last = steps.back();
  std::string text =
      fmt::format("  {:<28}{:>12}{:>14}{:>14}{:>14}\n", fmt::format("of {} ranks", last.ranks),
                  "bytes", "ready", "begins", "ends");
  constexpr std::size_t most = 24;  // batch norms of all ranks have many
  for (std::size_t i = 0; i < std::min(most, last.exchanges.size()); ++i) {
    const ExchangeTime& one = last.exchanges[i];
    text += fmt::format("  {:<28}{:>12}{:>14}{:>14}{:>14}\n", one.name, size_text(one.bytes),
                        ms(one.ready), ms(one.begin), ms(one.end));
  }
  if (last.exchanges.size() > most)
    text += fmt::format("  and {} more\n", last.exchanges.size() - most);
  text += fmt::format("\n  {:>6}{:>14}{:>14}{:>14}{:>12}{:>18}\n", "ranks", "exchange", "exposed",
                      "step", "efficiency", "without overlap");
  for (const ScaledStep& step : steps)
    text += fmt::format("  {:>6}{:>14}{:>14}{:>14}{:>10.1f} %{:>16.1f} %\n", step.ranks,
                        ms(step.exchange), ms(step.exposed), ms(step.alone + step.exposed),
                        100 * step.efficiency(), 100 * step.efficiency_without_overlap());
  if (last.accumulate > 1)
    text += fmt::format(
        "\n  means of the {0} steps of an update; gradients are exchanged, and parameters updated, "
        "in the last of them\n",
        last.accumulate);
  return text;
}

nlohmann::json scaling_json(const std::vector<ScaledStep>& steps) {
  auto rows = nlohmann::json::array();
  for (const ScaledStep& step : steps) {
    auto exchanges = nlohmann::json::array();
    for (const ExchangeTime& one : step.exchanges)
      exchanges.push_back({{"name", one.name},
                           {"bytes", one.bytes},
                           {"ready_seconds", one.ready},
                           {"begin_seconds", one.begin},
                           {"end_seconds", one.end}});
    rows.push_back({{"ranks", step.ranks},
                    {"accumulate", step.accumulate},
                    {"one_rank_seconds", step.of_one_rank},
                    {"alone_seconds", step.alone},
                    {"exchange_seconds", step.exchange},
                    {"exposed_seconds", step.exposed},
                    {"efficiency", step.efficiency()},
                    {"exchanges", exchanges}});
  }
  return rows;
}

}  // namespace warpstep
