// What a comparison compares: a number a step for the step, its parts and its calls.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::advice {

enum class Scope : std::uint8_t { step, part, call };

struct Series {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<double> ns;  // by step
};

// Steps that are drawn from together: those of a window, or all of a run.
struct RunSeries {
  std::vector<std::size_t> strata;  // sizes, in the order of the steps
  std::vector<Series> series;       // "step", parts, calls in the order of the program
  bool from_windows = false;

  std::size_t steps() const { return series.empty() ? 0 : series.front().ns.size(); }
};

// Steps of complete windows; with `windows` false, and where there are none, all but the first ones
// that warm up, without calls. Of more than `most_compared` every n-th is taken.
constexpr std::size_t most_compared = 2000;
std::size_t window_steps(const Session& session);  // of complete windows
RunSeries series_of(const Session& session, bool windows);
// Every other step from the first or from the second one on.
RunSeries half_of(const RunSeries& run, std::size_t first);

// The series of both runs side by side; one that a run lacks is 0 in each of its steps.
struct Pair {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<double> before, after;
};
std::vector<Pair> aligned(const RunSeries& before, const RunSeries& after);

}  // namespace warpstep::profiler::advice
