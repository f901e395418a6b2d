#include "profiler/analysis/compare_statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace warpstep::profiler {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, values.size()));
}

std::vector<double> levels_of(const std::vector<std::vector<double>>& runs) {
  std::vector<double> result;
  for (const std::vector<double>& parts : runs) result.push_back(mean_of(parts));
  return result;
}

double squares_of(const std::vector<double>& values) {
  const double middle = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return sum;
}

struct Variance {
  double value = 0, freedom = 0;
};

// Of a level, by what differs from part to part and from run to run.
Variance variance_within(const std::vector<std::vector<double>>& before,
                         const std::vector<std::vector<double>>& after) {
  std::vector<std::vector<double>> deviations;
  for (const auto* side : {&before, &after})
    for (const std::vector<double>& run : *side) {
      deviations.push_back(run);
      for (double& value : deviations.back()) value -= mean_of(run);
    }
  const std::size_t parts = deviations.front().size(), runs = deviations.size();
  if (parts < 2 || runs < 2) return {};
  double sum = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    std::vector<double> of_part;
    for (const std::vector<double>& run : deviations) of_part.push_back(run[part]);
    sum += squares_of(of_part);
  }
  const auto freedom = static_cast<double>((runs - 1) * (parts - 1));
  return {sum / freedom / static_cast<double>(parts), freedom};
}

Variance sum_of(const Variance& a, const Variance& b) {
  const double value = a.value + b.value;
  double inverse = 0;
  for (const Variance& one : {a, b})
    if (one.value > 0 && one.freedom > 0) inverse += one.value * one.value / one.freedom;
  return {value, inverse > 0 ? value * value / inverse : a.freedom};
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t upper = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(upper);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

std::size_t parts_of(std::size_t steps) {
  return std::clamp<std::size_t>(steps / 3, 4, 10);
}

std::vector<double> part_medians(const std::vector<double>& values, std::size_t parts) {
  std::vector<double> medians;
  for (std::size_t part = 0; part < parts; ++part)
    medians.push_back(
        median({values.begin() + static_cast<std::ptrdiff_t>(part * values.size() / parts),
                values.begin() + static_cast<std::ptrdiff_t>((part + 1) * values.size() / parts)}));
  return medians;
}

double fast_level(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 20);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// With t = sqrt(d) tan(a) the density is c cos(a)^(d - 1), which Simpson's rule integrates.
double student_p(double t, double freedom) {
  constexpr int pieces = 100;
  const double d = freedom;
  const double from = std::atan(std::abs(t) / std::sqrt(d)), to = std::numbers::pi / 2;
  const double width = (to - from) / pieces;
  double sum = 0;
  for (int i = 0; i <= pieces; ++i) {
    const double weight = i == 0 || i == pieces ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::max(0.0, std::cos(from + i * width)), d - 1);
  }
  const double scale =
      std::exp(std::lgamma((d + 1) / 2) - std::lgamma(d / 2)) / std::sqrt(std::numbers::pi);
  return std::clamp(2 * scale * sum * width / 3, 0.0, 1.0);
}

namespace {

double solve_95(double freedom) {
  double low = 0, high = 13;  // 12.7 with one degree of freedom
  while (high - low > 1e-7) {
    const double middle = (low + high) / 2;
    (student_p(middle, freedom) > 0.05 ? low : high) = middle;
  }
  return high;
}

}  // namespace

double student_95(double freedom) {
  constexpr int per_one = 4;
  const int quarters = std::max(per_one, static_cast<int>(freedom * per_one));
  static const std::vector<double> known = [] {  // every row of a comparison asks
    std::vector<double> points;
    for (int i = per_one; i <= 20 * per_one; ++i)
      points.push_back(solve_95(static_cast<double>(i) / per_one));
    return points;
  }();
  const auto at = static_cast<std::size_t>(quarters - per_one);
  return at < known.size() ? known[at] : solve_95(static_cast<double>(quarters) / per_one);
}

Difference difference_of_runs(const std::vector<std::vector<double>>& before,
                              const std::vector<std::vector<double>>& after, const Prior& prior,
                              const Bias& bias) {
  const std::vector<double> b = levels_of(before), a = levels_of(after);
  Difference found{.before = mean_of(b), .after = mean_of(a)};
  const auto between = static_cast<double>(b.size() + a.size()) - 2;
  const Variance known = sum_of({prior.sd * prior.sd, static_cast<double>(prior.freedom)},
                                variance_within(before, after));
  const double freedom = known.freedom + between;
  if (freedom < 1) return found;
  const double variance = (known.freedom * known.value + squares_of(b) + squares_of(a)) / freedom;
  const double error =
      std::sqrt(variance * (1 / static_cast<double>(b.size()) + 1 / static_cast<double>(a.size())));
  found.least = student_95(freedom) * error;
  const double change = found.after - found.before;
  found.low = change - found.least - bias.down;
  found.high = change + found.least + bias.up;
  const double beyond = std::max(0.0, std::abs(change) - (change > 0 ? bias.down : bias.up));
  if (error > 0)
    found.p = student_p(beyond / error, freedom);
  else
    found.p = beyond > 0 ? 0 : 1;
  return found;
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
