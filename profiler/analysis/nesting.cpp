#include "profiler/analysis/nesting.h"

#include <algorithm>

namespace warpstep::profiler::analysis {

Nesting nest(const std::vector<Interval>& items) {
  Nesting nesting;
  nesting.parent.assign(items.size(), -1);
  std::vector<std::size_t> open;
  std::uint64_t now = 0;
  const auto advance = [&](std::uint64_t to) {
    while (!open.empty()) {
      const std::size_t inner = open.back();
      const std::uint64_t end = std::min(items[inner].end_ns, to);
      if (now < end) {
        nesting.slices.push_back({now, end, inner});
        now = end;
      }
      if (items[inner].end_ns > to) break;
      open.pop_back();
    }
    now = std::max(now, to);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    advance(items[i].begin_ns);
    if (!open.empty()) nesting.parent[i] = static_cast<std::int64_t>(open.back());
    open.push_back(i);
  }
  advance(UINT64_MAX);
  return nesting;
}

}  // namespace warpstep::profiler::analysis
