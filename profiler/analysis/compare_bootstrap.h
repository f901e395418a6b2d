// The statistics of a comparison: whether two medians differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpstep::profiler {

double median(std::vector<double> values);  // 0 of none

// Correlation of values with the next ones of their stratum, 0 when it is not significant (two
// standard errors, 2 / sqrt(n)) or is negative.
double correlation(const std::vector<double>& values, const std::vector<std::size_t>& strata);

// The length of the blocks in a bootstrap of correlated steps: (6 r^2 / (1 - r^2)^2 n)^(1/3), which
// is Politis and White, "Automatic block-length selection for the dependent bootstrap", Econometric
// Reviews 23 (2004), of a process whose values are r times the last and noise. 1 without
// correlation.
std::size_t block_length(double correlation, std::size_t steps);

// Resamples of a run's steps: how often each one is drawn, stratum by stratum. All series of a run
// share them, which keeps what their steps have in common, and costs one draw for all.
class Resamples {
 public:
  // `seed` and `run` decide every draw. Steps are drawn in blocks of neighbours, around the
  // stratum's end; in blocks of 1 they are drawn one by one.
  Resamples(const std::vector<std::size_t>& strata, int count, std::uint32_t seed,
            std::uint32_t run, std::size_t block = 1);

  int count() const { return count_; }
  // The median of `values`, one per step, in each resample.
  std::vector<double> medians(const std::vector<double>& values) const;

 private:
  std::size_t steps_ = 0;
  int count_ = 0;
  std::vector<std::uint16_t> times_;  // [resample][step]
};

struct Difference {
  double low = 0, high = 0;  // 95 % percentile interval of after - before
  double p = 1;              // of a difference of 0, two-sided
};
// p is twice the share of resamples on the other side of 0 or, being no finer than one resample,
// what the normal distribution gives for the bootstrap's standard error; the larger of the two.
Difference median_difference(double observed, const std::vector<double>& before,
                             const std::vector<double>& after);

// Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57 (1995): which of the
// hypotheses are rejected.
std::vector<bool> rejected(const std::vector<double>& p, double q);

}  // namespace warpstep::profiler
