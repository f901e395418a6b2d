#include "engine/core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace warpstep {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0U : 1U)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t shortest_prefix = 3;
  const std::string typed = lower(word);
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string name = lower(candidate);
    const bool prefix = std::min(typed.size(), name.size()) >= shortest_prefix &&
                        (typed.starts_with(name) || name.starts_with(typed));
    const std::size_t distance = prefix ? std::size_t{typed != name} : edit_distance(typed, name);
    if (distance >= best_distance) continue;
    best = &candidate;
    best_distance = distance;
  }
  return best ? *best : std::string();
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string_view prefix) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? std::string() : fmt::format("; did you mean {}{}?", prefix, near);
}

std::string size_text(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.2f} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", bytes / (1 << 10));
  return fmt::format("{:.0f} B", bytes);
}

}  // namespace warpstep
