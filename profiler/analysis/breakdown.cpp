#include "profiler/analysis/breakdown.h"

#include <utility>

namespace warpstep::profiler {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, categories> texts{{
    {"kernel", "Kernel"},
    {"copy", "Memcpy"},
    {"memset", "Memset"},
    {"communication", "Communication"},
    {"runtime", "Runtime"},
    {"data", "DataLoader"},
    {"sync", "Sync wait"},
    {"cpu", "CPU"},
    {"other", "Other"},
}};

// Adds the time of `pieces`, each of which lies in one of `steps`; both in order.
void credit(std::span<const Interval> steps, std::span<const Interval> pieces, std::size_t category,
            std::vector<Parts>& parts) {
  std::size_t step = 0;
  for (const Interval& piece : pieces) {
    while (steps[step].end_ns < piece.end_ns) ++step;
    parts[step][category] += piece.end_ns - piece.begin_ns;
  }
}

}  // namespace

std::string_view name(Category category) {
  return texts[static_cast<std::size_t>(category)].first;
}

std::string_view title(Category category) {
  return texts[static_cast<std::size_t>(category)].second;
}

std::vector<Parts> sweep(std::span<const Interval> steps,
                         const std::array<std::vector<Interval>, categories>& by_category) {
  std::vector<Parts> parts(steps.size(), Parts{});
  std::vector<Interval> rest;  // of the steps: nobody's yet
  for (const Interval& step : steps)
    if (step.begin_ns < step.end_ns) rest.push_back(step);
  for (std::size_t c = 0; c < categories; ++c) {
    if (by_category[c].empty()) continue;
    const std::vector<Interval> wanted = merged(by_category[c]);
    credit(steps, intersection(rest, wanted), c, parts);
    rest = difference(rest, wanted);
  }
  credit(steps, rest, static_cast<std::size_t>(Category::other), parts);
  return parts;
}

}  // namespace warpstep::profiler
