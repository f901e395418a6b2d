// Who holds memory when, over the calls of a step.
#include <fmt/format.h>

#include <algorithm>

#include "profiler/export/html.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

constexpr double base = 220, top = 18;
constexpr std::size_t kind_colours = 10;

std::string kind_class(std::size_t kind) {
  return fmt::format("m{}", kind % kind_colours);
}

Table curve_table(const MemoryTimeline& memory) {
  Table table{.key = "memory_by_call",
              .title = "Bytes alive at each call",
              .columns = {{"call", "call", Unit::count}}};
  for (const std::string& kind : memory.kinds)
    table.columns.push_back({kind + "_bytes", kind, Unit::bytes});
  const std::size_t calls = memory.by_kind.empty() ? 0 : memory.by_kind.front().size();
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<Cell> row{static_cast<std::int64_t>(call + 1)};
    for (const auto& bytes : memory.by_kind) {
      row.emplace_back();
      if (call < bytes.size()) row.back() = static_cast<std::int64_t>(bytes[call]);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Steps between calls: what is alive does not change within one.
std::vector<Point> outline(const std::vector<double>& bytes, double highest) {
  std::vector<Point> points;
  const double calls = static_cast<double>(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double y = base - bytes[i] / highest * (base - top);
    points.push_back({static_cast<double>(i) / calls, y});
    points.push_back({static_cast<double>(i + 1) / calls, y});
  }
  return points;
}

std::string memory_chart(const MemoryTimeline& memory) {
  if (memory.by_kind.empty() || memory.by_kind.front().empty()) return "";
  const std::size_t calls = memory.by_kind.front().size();
  std::vector<double> sum(calls, 0);
  for (const auto& bytes : memory.by_kind)
    for (std::size_t i = 0; i < std::min(calls, bytes.size()); ++i)
      sum[i] += static_cast<double>(bytes[i]);
  const double highest = std::max(std::ranges::max(sum), 1.0);
  std::string body, legend;
  std::vector<double> under(calls, 0);
  for (std::size_t kind = 0; kind < memory.by_kind.size(); ++kind) {
    std::vector<double> over = under;
    for (std::size_t i = 0; i < std::min(calls, memory.by_kind[kind].size()); ++i)
      over[i] += static_cast<double>(memory.by_kind[kind][i]);
    if (over != under) {
      body += band(kind_class(kind), outline(over, highest), outline(under, highest), base);
      legend += legend_item(kind_class(kind), kind < memory.kinds.size() ? memory.kinds[kind] : "");
    }
    under = std::move(over);
  }
  for (const double share : {0.5, 1.0})
    body += grid_line(base - share * (base - top), quantity(share * highest, Unit::bytes));
  const double peak = (static_cast<double>(memory.peak_call) + 0.5) / static_cast<double>(calls);
  body += vertical("l-mark", peak, top - 4, base);
  body += text(peak, base + 16, fmt::format("peak, call {}", memory.peak_call + 1), "tick");
  if (peak > 0.3) body += text(0, base + 16, "call 1", "tick");
  if (peak < 0.7) body += text(1, base + 16, fmt::format("call {}", calls), "tick");
  return chart(
      {.id = "memory-curve",
       .title = "Memory alive over the calls of a step",
       .summary = fmt::format("Stacked by kind; the peak is at call {} of {}, {} with what "
                              "lives outside the arena.",
                              memory.peak_call + 1, calls, quantity(highest, Unit::bytes)),
       .height = static_cast<int>(base) + 22,
       .body = body,
       .legend = legend,
       .table = table(curve_table(memory))});
}

Table owners_table(const MemoryTimeline& memory) {
  Table table{.key = "memory",
              .title = "Owners at the peak",
              .note = fmt::format("What is alive at call {}, largest first; shares are of the "
                                  "arena's live bytes.",
                                  memory.peak_call + 1),
              .columns = {{"name", "name"},
                          {"layer", "layer"},
                          {"kind", "kind"},
                          {"bytes", "size", Unit::bytes},
                          {"share", "share", Unit::share}}};
  for (const MemoryOwner& owner : memory.at_peak) {
    const double of = static_cast<double>(std::max<std::uint64_t>(memory.peak_bytes, 1));
    table.rows.push_back({owner.name, owner.layer, owner.kind,
                          static_cast<std::int64_t>(owner.bytes),
                          static_cast<double>(owner.bytes) / of});
  }
  return table;
}

Table persistent_table(const MemoryTimeline& memory) {
  Table table{
      .key = "persistent",
      .title = "Outside the arena",
      .note = "Alive all the time.",
      .columns = {
          {"name", "name"}, {"layer", "layer"}, {"kind", "kind"}, {"bytes", "size", Unit::bytes}}};
  for (const MemoryOwner& owner : memory.persistent)
    table.rows.push_back(
        {owner.name, owner.layer, owner.kind, static_cast<std::int64_t>(owner.bytes)});
  return table;
}

}  // namespace

std::string memory_part(const Analysis& analysis) {
  const MemoryTimeline& memory = analysis.memory;
  if (memory.by_kind.empty() && memory.at_peak.empty()) return "";
  const auto bytes = [](std::uint64_t count) {
    return quantity(static_cast<double>(count), Unit::bytes);
  };
  const std::string lead = prose(fmt::format(
      "The arena reserves {}, of which {} are alive at the peak ({} never used then); {} live "
      "outside it.",
      bytes(memory.arena_bytes), bytes(memory.peak_bytes),
      quantity(memory.fragmentation, Unit::share), bytes(memory.persistent_bytes)));
  std::string body = memory_chart(memory);
  if (!memory.at_peak.empty()) body += table(owners_table(memory), {.titled = true, .code = 0});
  if (!memory.persistent.empty())
    body += "<details class=\"data\"><summary>What lives outside the arena</summary>\n" +
            table(persistent_table(memory), {.code = 0}) + "</details>\n";
  return section("memory", "Memory", lead, body);
}

}  // namespace warpstep::profiler::html
