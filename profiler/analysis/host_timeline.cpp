#include "profiler/analysis/host_timeline.h"

#include <algorithm>

#include "profiler/analysis/nesting.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler::analysis {
namespace {

struct Item {
  Interval time;
  std::string_view bound;
  std::uint32_t name = 0;
  bool is_whole = false;  // what is nested in it is part of it
};

Item item_of(const Session& session, const Span& span) {
  Item item{{span.begin_ns, span.end_ns}, "cpu", span.name, false};
  switch (session.kind(span)) {
    case Kind::wait:
    case Kind::sample:
    case Kind::stage: item.bound = "data"; break;
    case Kind::sync: item.bound = "sync"; break;
    case Kind::copy: item.bound = session.computes_on_host() ? "copy" : "cpu"; break;
    case Kind::host_api: item.bound = "launch"; break;
    case Kind::call: item.bound = session.computes_on_host() ? "kernel" : "cpu"; break;
    default: break;
  }
  item.is_whole = item.bound != "cpu" && item.bound != "launch";
  return item;
}

std::vector<Item> items_of(const Session& session) {
  const auto trainer = trainer_thread(session);
  std::vector<Item> items;
  for (const Span& span : session.spans)
    if (span.thread == trainer && span.begin_ns < span.end_ns)
      items.push_back(item_of(session, span));
  for (const Activity& a : session.activities) {
    const bool is_host = a.what == What::api || a.what == What::sync;
    if (!is_host || a.start_ns >= a.end_ns || !is_of_thread(session, a, trainer)) continue;
    const bool waits = a.what == What::sync;
    items.push_back({{a.start_ns, a.end_ns}, waits ? "sync" : "launch", a.name, waits});
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.time.begin_ns != b.time.begin_ns ? a.time.begin_ns < b.time.begin_ns
                                              : a.time.end_ns > b.time.end_ns;
  });
  return items;
}

}  // namespace

std::vector<HostSlice> host_timeline(const Session& session) {
  const std::vector<Item> items = items_of(session);
  std::vector<Interval> times;
  for (const Item& item : items) times.push_back(item.time);
  const Nesting nesting = nest(times);
  std::vector<std::size_t> owner(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    owner[i] = i;
    if (nesting.parent[i] < 0) continue;
    const std::size_t outer = owner[static_cast<std::size_t>(nesting.parent[i])];
    if (items[outer].is_whole) owner[i] = outer;
  }
  std::vector<HostSlice> slices;
  for (const Slice& slice : nesting.slices) {
    const Item& item = items[owner[slice.item]];
    const bool continues = !slices.empty() && slices.back().end_ns == slice.begin_ns &&
                           slices.back().name == item.name && slices.back().bound == item.bound;
    if (continues)
      slices.back().end_ns = slice.end_ns;
    else
      slices.push_back({slice.begin_ns, slice.end_ns, item.bound, item.name});
  }
  return slices;
}

}  // namespace warpstep::profiler::analysis
