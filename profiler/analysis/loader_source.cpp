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

// Of y over x: by least squares.
struct Slope {
  double value = 0;
  double error = 0;  // of it: so many standard errors
  bool is_known = false;
};

// `x` of each read; reads that were blocked for longer than `longest` are left out.
template <class Value>
Slope slope_of(std::span<const ReadTime> reads, double longest, Value x) {
  double n = 0, mean_x = 0, mean_y = 0;
  for (const ReadTime& read : reads)
    if (read.blocked_ns <= longest) n += 1, mean_x += x(read), mean_y += read.blocked_ns;
  mean_x /= n, mean_y /= n;
  double xx = 0, xy = 0, yy = 0;
  for (const ReadTime& read : reads) {
    if (read.blocked_ns > longest) continue;
    const double dx = x(read) - mean_x, dy = read.blocked_ns - mean_y;
    xx += dx * dx, xy += dx * dy, yy += dy * dy;
  }
  if (n < 3 || xx < 1e-6 * n * mean_x * mean_x) return {};
  const double slope = xy / xx;
  return {slope, errors * std::sqrt(std::max(0.0, yy - slope * xy) / (n - 2) / xx), true};
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
  fit.reads_per_s = static_cast<double>(reads.size()) / any * 1e9;
  fit.readers = sum / any;
}

// Several readers that are blocked for most of their time, of which one is served after the other:
// reads end at regular distances, and some, which were served at once, take no longer than that.
// Readers that do not wait for each other end at any distance or, in step, after a multiple of it.
bool are_serial(std::span<const ReadTime> reads, double readers) {
  constexpr double least_readers = 1.5, few = 0.1, regular = 0.5, at_once = 1.5;
  if (readers < least_readers) return false;
  double blocked = 0, all = 0;
  std::vector<double> ends, times;
  for (const ReadTime& read : reads) {
    blocked += read.blocked_ns, all += static_cast<double>(read.end_ns - read.begin_ns);
    ends.push_back(static_cast<double>(read.end_ns));
    times.push_back(static_cast<double>(read.end_ns - read.begin_ns));
  }
  if (blocked < 0.5 * all) return false;
  std::ranges::sort(ends);
  std::vector<double> distances;
  for (std::size_t i = 1; i < ends.size(); ++i) distances.push_back(ends[i] - ends[i - 1]);
  const auto of = [](std::vector<double>& values, double share) {
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
    std::ranges::nth_element(values, values.begin() + at);
    return values[static_cast<std::size_t>(at)];
  };
  const double usual = of(distances, 0.5);
  return usual > 0 && of(distances, few) >= regular * usual && of(times, few) <= at_once * usual;
}

// Of readers that are blocked for a share of their time each, independently.
double busy_per_blocked(double blocked_share, double readers) {
  const double any_blocked = 1 - std::pow(1 - blocked_share, std::max(1.0, readers));
  return std::max(1.0, any_blocked / blocked_share);
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
  fit.is_serial = are_serial(reads, fit.readers);
  const double longest = longest_kept(reads);
  double count = 0, bytes = 0, readers = 0, blocked = 0, all = 0, left_out = 0;
  for (const ReadTime& read : reads) {
    if (read.blocked_ns > longest) {
      left_out += read.blocked_ns;
      continue;
    }
    count += 1, bytes += read.bytes, readers += read.readers, blocked += read.blocked_ns;
    all += static_cast<double>(read.end_ns - read.begin_ns);
  }
  if (left_out > 0) fit.left_out_share = left_out / (left_out + blocked);
  bytes /= count, readers /= count, blocked /= count, all /= count;
  fit.latency_ns = blocked;
  if (blocked <= 0 || bytes <= 0) return fit;  // bytes were not recorded
  fit.limit_ns_per_byte = blocked / (readers * bytes);
  fit.busy_per_blocked = busy_per_blocked(std::min(1.0, blocked / all), readers);
  // One more reader takes as much longer as a mean read needs of the bandwidth. So does a larger
  // file, where readers take turns; where they share, as many times longer as there are readers:
  // the limit is below that.
  Slope by_readers = slope_of(reads, longest, [](const ReadTime& read) { return read.readers; });
  by_readers.value /= bytes, by_readers.error /= bytes;
  const Slope by_size = slope_of(reads, longest, [](const ReadTime& read) { return read.bytes; });
  Slope best{fit.limit_ns_per_byte / 2, fit.limit_ns_per_byte, false};
  for (const Slope& slope : {by_readers, by_size})
    if (slope.is_known && slope.error < best.error) best = slope;
  const auto possible = [&](double ns) { return std::clamp(ns, 0.0, fit.limit_ns_per_byte); };
  fit.ns_per_byte = possible(best.value);
  fit.least_ns_per_byte = possible(best.value - best.error);
  fit.most_ns_per_byte = possible(best.value + best.error);
  fit.bandwidth_share = fit.ns_per_byte / fit.limit_ns_per_byte;
  fit.latency_ns = blocked * (1 - fit.bandwidth_share);
  return fit;
}

}  // namespace warpstep::profiler
