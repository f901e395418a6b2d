#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "profiler/analysis/nesting.h"
#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler::analysis {
namespace {

struct Item {
  Interval time;
  std::uint32_t name = 0;
};

bool takes_time(Kind kind) {
  return kind != Kind::mark && kind != Kind::counter && kind != Kind::kernel &&
         kind != Kind::metric;
}

// Calls, and the loader's stages, have tables of their own.
std::string_view listed_kind(Kind kind) {
  switch (kind) {
    case Kind::range: return "range";
    case Kind::wait: return "wait for data";
    case Kind::sync: return "sync";
    case Kind::host_api: return "api";
    case Kind::copy: return "copy";
    default: return "";
  }
}

// By thread, each sorted as nest() wants it. Threads that only CUPTI knows come last.
std::vector<std::vector<Item>> items_by_thread(const Session& session, const StepIndex& steps) {
  std::vector<std::vector<Item>> items(session.threads.size());
  for (const Span& span : session.spans)
    if (takes_time(session.kind(span)) && steps.at(span.begin_ns) >= 0)
      items[span.thread].push_back({{span.begin_ns, span.end_ns}, span.name});
  std::unordered_map<std::uint32_t, std::size_t> by_system;
  for (std::size_t t = 0; t < session.threads.size(); ++t)
    by_system.try_emplace(session.threads[t].system, t);
  for (const Activity& a : session.activities) {
    if ((a.what != What::api && a.what != What::sync) || steps.at(a.start_ns) < 0) continue;
    const auto [at, is_new] = by_system.try_emplace(a.stream, items.size());
    if (is_new) items.emplace_back();
    items[at->second].push_back({{a.start_ns, a.end_ns}, a.name});
  }
  for (auto& of_thread : items)
    std::stable_sort(of_thread.begin(), of_thread.end(), [](const Item& a, const Item& b) {
      return a.time.begin_ns != b.time.begin_ns ? a.time.begin_ns < b.time.begin_ns
                                                : a.time.end_ns > b.time.end_ns;
    });
  return items;
}

std::vector<std::uint64_t> self_times(const std::vector<Item>& items) {
  std::vector<Interval> times;
  for (const Item& item : items) times.push_back(item.time);
  std::vector<std::uint64_t> self(items.size());
  for (const Slice& slice : nest(times).slices) self[slice.item] += slice.end_ns - slice.begin_ns;
  return self;
}

}  // namespace

std::vector<HostRow> host_rows(const Session& session, const StepIndex& steps) {
  const auto trainer = trainer_thread(session);
  const double all = static_cast<double>(steps.total_ns());
  std::map<std::uint32_t, HostRow> by_name;
  const auto items = items_by_thread(session, steps);
  for (std::size_t t = 0; t < items.size(); ++t) {
    const std::vector<std::uint64_t> self = self_times(items[t]);
    for (std::size_t i = 0; i < self.size(); ++i) {
      const Item& item = items[t][i];
      const std::string_view kind = listed_kind(session.names[item.name].kind);
      if (kind.empty()) continue;
      HostRow& row = by_name[item.name];
      const std::uint64_t ns = item.time.end_ns - item.time.begin_ns;
      row.kind = kind;
      ++row.count;
      row.total_ns += ns;
      row.self_ns += self[i];
      row.max_ns = std::max(row.max_ns, ns);
      if (trainer == t) row.share += ratio(static_cast<double>(self[i]), all);
    }
  }
  std::vector<HostRow> rows;
  for (auto& [name, row] : by_name) {
    row.function = session.name(name);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const HostRow& a, const HostRow& b) { return a.self_ns > b.self_ns; });
  return rows;
}

}  // namespace warpstep::profiler::analysis
