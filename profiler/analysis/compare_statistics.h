// The statistics of a comparison: whether the runs of one side differ from those of the other by
// more than equal runs do.
#pragma once

#include <cstddef>
#include <vector>

namespace warpstep::profiler {

double median(std::vector<double> values);  // 0 of none

// A run's level is the mean of the medians of equal parts of its steps, in order: a median alone
// jumps where half of the steps are of one kind and half of another (the first epoch decodes, the
// second does not). Of 24 equal runs of the mlp, the levels' sd was 1.7 %, that of the medians 4.1.
std::size_t parts_of(std::size_t steps);  // of about 3 steps or more, from 4 to 10
std::vector<double> part_medians(const std::vector<double>& values, std::size_t parts);

// The 5 % quantile. Other work on the machine makes steps longer, and hardly ever all of them: of
// 30 equal runs of the mlp on a virtual machine with noisy neighbours, one of which was disturbed
// throughout, the sd of the levels of the others was 8 %, that of these 3 %.
double fast_level(std::vector<double> values);

// Student's distribution: the probability of |T| >= t, and the t that 5 % are beyond.
double student_p(double t, double freedom);
double student_95(double freedom);  // of the next lower quarter

// What is known of the spread between equal runs before any was made.
struct Prior {
  double sd = 0;    // of a run's level, in the values' unit; 0: unknown
  int freedom = 0;  // the runs that this knowledge is worth
};

// How much the difference may be the machine's. Moves the limits apart.
struct Bias {
  double down = 0, up = 0;  // the true difference may be lower, or higher, by this
};

struct Difference {
  double before = 0, after = 0;  // mean levels of the runs
  double low = 0, high = 0;      // 95 % interval of after - before
  double p = 1;                  // of a difference of 0, two-sided
  double least = 0;  // the smallest difference that 95 % of equal runs stay below, without bias
};
// The moderated t of Smyth, "Linear models and empirical Bayes methods for assessing differential
// expression", Stat. Appl. Genet. Mol. Biol. 3 (2004): with s^2 of d degrees of freedom between the
// runs of each side, and a prior s0^2 worth d0,
//   s~^2 = (d0 s0^2 + d s^2) / (d0 + d),  t = (after - before) / (s~ sqrt(1/n + 1/m)),
// which is Student's with d0 + d degrees of freedom. With one run a side, d is 0 and the prior is
// all that says how far equal runs are apart. To the prior's variance is added what the runs show:
// the interaction of run and part (analysis of variance), over the number of parts, is what noise
// and disturbances within runs do to a level; what all runs have in common is not part of it. The
// sum is worth the degrees of freedom that Satterthwaite's formula gives (Biometrics Bulletin 2,
// 1946): with few parts, and noise that is much larger than the prior, hardly one.
// Values are by run and part: the same number of parts in every run.
Difference difference_of_runs(const std::vector<std::vector<double>>& before,
                              const std::vector<std::vector<double>>& after, const Prior& prior,
                              const Bias& bias = {});

// Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57 (1995): which of the
// hypotheses are rejected.
std::vector<bool> rejected(const std::vector<double>& p, double q);

}  // namespace warpstep::profiler
