#include "profiler/analysis/whole_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/tables.h"

namespace warpstep::profiler {
namespace {

constexpr std::string_view steps_name = "steps", first_batch_name = "first batch",
                           other_name = "other";
constexpr double least_rest = 0.01;       // of a part: what is in none of its parts
constexpr double least_mentioned = 0.05;  // of a part

RunPart& part_of(std::vector<RunPart>& parts, std::string_view name) {
  const auto found =
      std::ranges::find_if(parts, [&](const RunPart& part) { return part.name == name; });
  if (found != parts.end()) return *found;
  parts.push_back({std::string(name), 0, 0, {}});
  return parts.back();
}

// The phases, disjoint, each with those within it.
struct Open {
  Interval time;
  std::string name;
  double ns = 0;
  std::vector<RunPart> parts;
};

std::vector<Open> outer_phases(const Session& session) {
  std::vector<Open> outer;
  for (const Phase& phase : session.phases) {
    const bool is_within = phase.depth > 0 && !outer.empty() &&
                           phase.begin_ns >= outer.back().time.begin_ns &&
                           phase.end_ns <= outer.back().time.end_ns;
    if (!is_within) {
      // Damage may have left phases that overlap: the earlier one keeps the time.
      const std::uint64_t end = outer.empty() ? 0 : outer.back().time.end_ns;
      const std::uint64_t begin = std::max(phase.begin_ns, end);
      if (phase.end_ns <= begin) continue;
      outer.push_back({{begin, phase.end_ns},
                       session.name(phase.name),
                       static_cast<double>(phase.end_ns - begin),
                       {}});
    } else if (phase.depth == 1) {
      RunPart& part = part_of(outer.back().parts, session.name(phase.name));
      part.ns += static_cast<double>(phase.ns);
      ++part.count;
    }
  }
  return outer;
}

// Steps after the last phase are of a run that was killed, or is still running.
void add_unfinished_steps(const Session& session, std::vector<Open>& outer) {
  const std::uint64_t end = outer.empty() ? 0 : outer.back().time.end_ns;
  std::uint64_t first = 0, last = 0;
  for (const Step& step : session.steps) {
    if (step.end_ns <= end) continue;
    if (last == 0) first = std::max(end, step.begin_ns);
    last = step.end_ns;
  }
  if (last > first)
    outer.push_back(
        {{first, last}, std::string(steps_name), static_cast<double>(last - first), {}});
}

// Waiting for the first batch is start-up, though it is inside of the first steps.
void take_out_first_batch(std::vector<RunPart>& parts) {
  const auto steps =
      std::ranges::find_if(parts, [](const RunPart& part) { return part.name == steps_name; });
  if (steps == parts.end()) return;
  const auto first = std::ranges::find_if(
      steps->parts, [](const RunPart& part) { return part.name == first_batch_name; });
  if (first == steps->parts.end()) return;
  RunPart moved = std::move(*first);
  steps->parts.erase(first);
  steps->ns -= moved.ns;
  parts.insert(steps, std::move(moved));
}

std::uint64_t last_ns(const Session& session, std::uint64_t last) {
  if (!session.steps.empty()) last = std::max(last, session.steps.back().end_ns);
  if (!session.samples.empty()) last = std::max(last, session.samples.back().at_ns);
  return last;
}

void add_rest(RunPart& part) {
  if (part.parts.empty()) return;
  double rest = part.ns;
  for (const RunPart& one : part.parts) rest -= one.ns;
  if (rest >= least_rest * part.ns) part.parts.push_back({std::string(other_name), rest, 1, {}});
}

}  // namespace

const RunPart* WholeRun::part(std::string_view name) const {
  const auto found =
      std::ranges::find_if(parts, [&](const RunPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

WholeRun whole_run(const Session& session) {
  WholeRun run;
  run.steps = static_cast<double>(session.steps.size());
  run.has_phases = !session.phases.empty();
  std::vector<Open> outer = outer_phases(session);
  if (!run.has_phases)
    for (const Step& step : session.steps)
      outer.push_back({{step.begin_ns, step.end_ns},
                       std::string(steps_name),
                       static_cast<double>(step.end_ns - step.begin_ns),
                       {}});
  else
    add_unfinished_steps(session, outer);
  if (outer.empty()) return run;
  std::uint64_t begin = outer.front().time.begin_ns;
  const std::uint64_t end = outer.back().time.end_ns;
  if (!session.steps.empty()) {
    const Step& first = session.steps.front();
    // Damage may have left no phase before the first step: then the process's start is unknown.
    if (run.has_phases && begin <= first.begin_ns)
      run.first_step_ns = static_cast<double>(first.end_ns - begin);
    begin = std::min(begin, first.begin_ns);
  }
  run.wall_ns = static_cast<double>((run.has_phases ? last_ns(session, end) : end) - begin);
  double left = run.wall_ns;
  for (Open& phase : outer) {
    RunPart& part = part_of(run.parts, phase.name);
    part.ns += phase.ns;
    ++part.count;
    left -= phase.ns;
    for (RunPart& within : phase.parts) {
      RunPart& sum = part_of(part.parts, within.name);
      sum.ns += within.ns;
      sum.count += within.count;
    }
  }
  take_out_first_batch(run.parts);
  for (RunPart& part : run.parts) add_rest(part);
  if (left > 0) run.parts.push_back({std::string(other_name), left, 1, {}});
  return run;
}

std::string parts_text(const RunPart& part, std::uint64_t times) {
  std::vector<RunPart> parts = part.parts;
  std::ranges::stable_sort(parts, std::ranges::greater(), &RunPart::ns);
  std::string text;
  for (const RunPart& one : parts)
    if (one.ns >= least_mentioned * part.ns)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          quantity(one.ns / static_cast<double>(times), Unit::ns), one.name);
  return text;
}

Table run_table(const WholeRun& run) {
  Table table{"whole_run",
              "Where the run's wall time went",
              run.has_phases ? "From the start of the process; the parts of a part are below it."
                             : "Without phases, which this session does not have.",
              {{"part", "part"},
               {"of", "of"},
               {"count", "times", Unit::count},
               {"ns", "time", Unit::ns},
               {"share", "share of the run", Unit::share}},
              {}};
  const auto add = [&](const RunPart& part, const std::string& of) {
    table.rows.push_back({part.name, known(of), cell(part.count), part.ns, part.ns / run.wall_ns});
  };
  for (const RunPart& part : run.parts) {
    add(part, "");
    for (const RunPart& within : part.parts) add(within, part.name);
  }
  return table;
}

}  // namespace warpstep::profiler
