#include "profiler/analysis/compare_bootstrap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/core/random.h"

namespace warpstep::profiler {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t upper = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(upper);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double correlation(const std::vector<double>& values, const std::vector<std::size_t>& strata) {
  const auto count = static_cast<double>(values.size());
  if (values.size() < 3) return 0;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0, products = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  std::size_t at = 0;
  for (const std::size_t size : strata) {
    for (std::size_t i = at; i + 1 < at + size; ++i)
      products += (values[i] - mean) * (values[i + 1] - mean);
    at += size;
  }
  const double r = squares > 0 ? products / squares : 0;
  return r > 2 / std::sqrt(count) ? std::min(r, 0.99) : 0;
}

std::size_t block_length(double correlation, std::size_t steps) {
  const double of_noise = 1 - correlation * correlation;
  const double length =
      std::cbrt(6 * correlation * correlation / (of_noise * of_noise) * static_cast<double>(steps));
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(length)), 1,
                                 std::max<std::size_t>(1, steps / 3));
}

Resamples::Resamples(const std::vector<std::size_t>& strata, int count, std::uint32_t seed,
                     std::uint32_t run, std::size_t block)
    : steps_(std::accumulate(strata.begin(), strata.end(), std::size_t{0})),
      count_(count),
      times_(steps_ * static_cast<std::size_t>(count)) {
  std::uint32_t drawn = 0;
  std::array<std::uint32_t, 4> words{};
  for (int r = 0; r < count; ++r) {
    std::uint16_t* stratum = times_.data() + static_cast<std::size_t>(r) * steps_;
    for (const std::size_t size : strata) {
      for (std::size_t i = 0; i < size; ++drawn) {
        if (drawn % 4 == 0) words = philox({drawn / 4, 0, run, 0}, {seed, 0});
        const std::size_t from = below(words[drawn % 4], static_cast<std::uint32_t>(size));
        const std::size_t end = std::min(size, i + std::max<std::size_t>(1, block));
        for (std::size_t j = 0; i < end; ++i, ++j) ++stratum[(from + j) % size];
      }
      stratum += size;
    }
  }
}

std::vector<double> Resamples::medians(const std::vector<double>& values) const {
  std::vector<std::size_t> order(steps_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result;
  const std::size_t low = (steps_ + 1) / 2, high = steps_ / 2 + 1;  // from 1
  for (int r = 0; r < count_ && steps_ > 0; ++r) {
    const std::uint16_t* const times = times_.data() + static_cast<std::size_t>(r) * steps_;
    std::size_t seen = 0, at = 0;
    while ((seen += times[order[at]]) < low) ++at;
    const double lower = values[order[at]];
    while (seen < high) seen += times[order[++at]];
    result.push_back((lower + values[order[at]]) / 2);
  }
  return result;
}

Difference median_difference(double observed, const std::vector<double>& before,
                             const std::vector<double>& after) {
  std::vector<double> deltas;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    deltas.push_back(after[i] - before[i]);
  if (deltas.empty()) return {};
  std::sort(deltas.begin(), deltas.end());
  const auto count = static_cast<double>(deltas.size());
  const auto quantile = [&](double share) {
    return deltas[static_cast<std::size_t>(std::lround(share * (count - 1)))];
  };
  const double mean = std::accumulate(deltas.begin(), deltas.end(), 0.0) / count;
  double squares = 0;
  for (const double delta : deltas) squares += (delta - mean) * (delta - mean);
  const double error = std::sqrt(squares / std::max(1.0, count - 1));
  double normal = observed == 0 ? 1 : 0;
  if (error > 0) normal = std::erfc(std::abs(observed) / error / std::sqrt(2.0));
  const auto beyond = std::count_if(deltas.begin(), deltas.end(), [&](double delta) {
    return observed > 0 ? delta <= 0 : delta >= 0;
  });
  const double counted = 2 * static_cast<double>(beyond) / count;
  return {quantile(0.025), quantile(0.975), std::min(1.0, std::max(normal, counted))};
}

std::vector<bool> rejected(const std::vector<double>& p, double q) {
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end());
  double limit = -1;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] <= q * static_cast<double>(i + 1) / static_cast<double>(sorted.size()))
      limit = sorted[i];
  std::vector<bool> result;
  for (const double value : p) result.push_back(value <= limit);
  return result;
}

}  // namespace warpstep::profiler
