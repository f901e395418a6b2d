#include "profiler/analysis/loader_source.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace warpstep::profiler {
namespace {

constexpr double trimmed = 0.02;    // of the reads: the longest
constexpr double errors = 3;        // of the range; reads that follow each other are alike
constexpr std::size_t fewest = 16;  // reads that a fit needs

struct Means {
  double x = 0, y = 0, xx = 0, xy = 0;
  std::size_t count = 0;
};

// Of x = readers * bytes and y = blocked time.
Means means_of(std::span<const ReadTime> reads, double longest) {
  Means m;
  for (const ReadTime& read : reads) {
    if (read.blocked_ns > longest) continue;
    const double x = read.readers * read.bytes, y = read.blocked_ns;
    ++m.count;
    m.x += x, m.y += y, m.xx += x * x, m.xy += x * y;
  }
  if (m.count == 0) return m;
  const auto n = static_cast<double>(m.count);
  m.x /= n, m.y /= n, m.xx /= n, m.xy /= n;
  return m;
}

double longest_kept(std::span<const ReadTime> reads) {
  std::vector<double> blocked;
  for (const ReadTime& read : reads) blocked.push_back(read.blocked_ns);
  const auto kept =
      static_cast<std::ptrdiff_t>((1 - trimmed) * static_cast<double>(blocked.size() - 1));
  std::ranges::nth_element(blocked, blocked.begin() + kept);
  return blocked[static_cast<std::size_t>(kept)];
}

void add_rates(std::span<const ReadTime> reads, SourceFit& fit) {
  double bytes = 0, sum = 0, any = 0, end = 0;
  std::vector<std::pair<double, double>> times;
  for (const ReadTime& read : reads) {
    bytes += read.bytes;
    sum += static_cast<double>(read.end_ns - read.begin_ns);
    times.emplace_back(read.begin_ns, read.end_ns);
  }
  std::ranges::sort(times);
  for (const auto& [from, to] : times) {
    any += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  if (any <= 0) return;
  fit.bytes_per_s = bytes / any * 1e9;
  fit.readers = sum / any;
}

}  // namespace

void count_readers(std::vector<ReadTime>& reads) {
  std::vector<std::pair<std::uint64_t, int>> changes;
  for (const ReadTime& read : reads) {
    changes.emplace_back(read.begin_ns, 1);
    changes.emplace_back(read.end_ns, -1);
  }
  std::ranges::sort(changes);
  // The integral of the number of readers over time, at each change.
  std::vector<double> area(changes.size(), 0.0);
  int active = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i > 0)
      area[i] = area[i - 1] + active * static_cast<double>(changes[i].first - changes[i - 1].first);
    active += changes[i].second;
  }
  const auto until = [&](std::uint64_t at) {
    const auto found =
        std::ranges::lower_bound(changes, at, {}, &std::pair<std::uint64_t, int>::first);
    return area[static_cast<std::size_t>(found - changes.begin())];
  };
  for (ReadTime& read : reads) {
    const auto time = static_cast<double>(read.end_ns - read.begin_ns);
    if (time > 0) read.readers = (until(read.end_ns) - until(read.begin_ns)) / time;
  }
}

SourceFit fit_source(std::span<const ReadTime> reads) {
  SourceFit fit;
  if (reads.size() < fewest) return fit;
  add_rates(reads, fit);
  const double longest = longest_kept(reads);
  const Means m = means_of(reads, longest);
  if (m.y <= 0) return fit;
  fit.latency_ns = m.y;
  if (m.x <= 0) return fit;  // bytes were not recorded
  const double most = m.y / m.x;
  fit.limit_ns_per_byte = most;
  const double variance = m.xx - m.x * m.x;
  double slope = 0, error = most;
  if (variance > 1e-6 * m.xx) {
    slope = (m.xy - m.x * m.y) / variance;
    double squares = 0;
    for (const ReadTime& read : reads) {
      if (read.blocked_ns > longest) continue;
      const double off = read.blocked_ns - m.y - slope * (read.readers * read.bytes - m.x);
      squares += off * off;
    }
    const auto n = static_cast<double>(m.count);
    error = errors * std::sqrt(squares / (n - 2) / (n * variance));
  } else {
    slope = most / 2;
  }
  fit.ns_per_byte = std::clamp(slope, 0.0, most);
  fit.least_ns_per_byte = std::clamp(slope - error, 0.0, most);
  fit.most_ns_per_byte = std::clamp(slope + error, 0.0, most);
  fit.latency_ns = m.y - fit.ns_per_byte * m.x;
  fit.bandwidth_share = fit.ns_per_byte * m.x / m.y;
  return fit;
}

}  // namespace warpstep::profiler
