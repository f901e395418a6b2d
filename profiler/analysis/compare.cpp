// The procedure: the level of each call and part in each run; the difference of the sides against
// what equal runs differ by; significant when the interval excludes zero, the difference is large
// enough for the step, and the family of all rows allows it.

#include "profiler/analysis/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "profiler/analysis/compare_series.h"
#include "profiler/analysis/disturbance.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t least_steps = 8;  // fewer do not show noise
constexpr std::size_t rough_steps = 20;
// Below, a difference may be the clock's: reading the host's takes 40 ns at both ends, and CUDA's
// events resolve 0.5 us.
constexpr double host_resolution_ns = 100, device_resolution_ns = 500;
constexpr double noticed_share = 0.02;  // of a step, by other programs: noise within runs has less

struct Sides {
  std::vector<std::vector<Series>> runs;  // those before first
  std::size_t before = 1;
  std::vector<std::size_t> updates;  // by run: the steps that a value of its series is the mean of
  double resolution = host_resolution_ns;
  // Of a step's time, by run: what the machine may have cost.
  double lost_before = 0, lost_after = 0;
  bool on_host = true;     // all runs computed on CPUs
  bool is_halves = false;  // of one run

  // Several runs a side show themselves what an equal load does to them; one run does not.
  bool is_pair() const { return runs.size() == 2; }
};

struct Scoped {
  Change change;
  Scope scope = Scope::step;
  double least = 0;                // ns: the smallest change that shows
  double machine = 0, hidden = 0;  // ns: of its change, and what the machine may hide at most
};

// The time of a row comes and goes as that of as many parts of the step of its length would: the
// variance between equal runs is in proportion to the time, and the step has `between_runs`.
double row_sd(double row_ns, double step_ns, const CompareOptions& options) {
  return options.between_runs * std::sqrt(row_ns * step_ns);
}

double level_of(const std::vector<double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0) / static_cast<double>(parts.size());
}

double row_level(const Row& row) {
  double sum = 0;
  for (const std::vector<double>& run : row.runs) sum += level_of(run);
  return sum / static_cast<double>(row.runs.size());
}

bool is_waiting(const Row& row) {
  return row.scope == Scope::part && (row.what == "data wait" || row.what == "copies");
}

// Of a row's change, what its fastest steps do not show in proportion: it may be other work on the
// machine, and a virtual machine's counters do not show what runs beside it on its host. Both sides
// as fast as halfway between them: the other way round the comparison has the same, negative.
double unseen_by_fastest(const Row& row) {
  if (is_waiting(row) || row.fast.front() <= 0 || row.fast.back() <= 0) return 0;
  const double half_way = std::sqrt(row.fast.back() / row.fast.front());
  return level_of(row.runs.back()) / half_way - level_of(row.runs.front()) * half_way;
}

// By row. Of a step only what its cores do is stretched: its waiting for data has other causes.
std::vector<double> unseen_by_fastest(const std::vector<Row>& rows, const Sides& sides,
                                      const CompareOptions& options) {
  std::vector<double> unseen(rows.size());
  if (!sides.is_pair() || !sides.on_host || options.between_runs == 0) return unseen;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    unseen[r] = unseen_by_fastest(rows[r]);
    if (rows[r].scope == Scope::part) unseen.front() += unseen[r];
  }
  return unseen;
}

// `unseen`: unseen_by_fastest() of the row.
Scoped test_row(const Row& row, const Sides& sides, double unseen, double step_ns,
                const CompareOptions& options) {
  const auto middle = row.runs.begin() + static_cast<std::ptrdiff_t>(sides.before);
  const double own_ns = row_level(row);
  Prior prior{row_sd(own_ns, step_ns, options), options.prior_runs};
  if (options.between_runs == 0) prior.freedom = static_cast<int>(row.runs.front().size()) - 1;
  const auto share = [&](double own, double other) {
    return std::clamp(sides.is_pair() ? own : own - other, 0.0, 1.0);
  };
  const Bias bias{std::max(unseen, own_ns * share(sides.lost_after, sides.lost_before)),
                  std::max(-unseen, own_ns * share(sides.lost_before, sides.lost_after))};
  const Difference found =
      difference_of_runs({row.runs.begin(), middle}, {middle, row.runs.end()}, prior, bias);
  Scoped tested{.change = {.what = row.what, .phase = row.phase}, .scope = row.scope};
  tested.change.before_ns = found.before;
  tested.change.after_ns = found.after;
  tested.change.low = found.low;
  tested.change.high = found.high;
  tested.change.p = found.p;
  tested.least = found.least;
  tested.hidden = std::max(bias.down, bias.up);
  tested.machine = found.after > found.before ? bias.down : bias.up;
  return tested;
}

// The step is one question; its parts, modules and calls are a family of many. A row that is less
// than the smallest change that matters is not in it: that depends on its level, not on its change
// (Bourgon, Gentleman and Huber, "Independent filtering increases detection power", PNAS 107
// (2010)).
std::vector<Scoped> test_all(const Sides& sides, const CompareOptions& options) {
  const std::vector<Row> rows = rows_of(sides.runs);
  const double step_ns = row_level(rows.front());
  std::vector<Scoped> all;
  const std::vector<double> unseen = unseen_by_fastest(rows, sides, options);
  for (std::size_t r = 0; r < rows.size(); ++r)
    all.push_back(test_row(rows[r], sides, unseen[r], step_ns, options));
  const double least = std::max(options.least_share * step_ns, sides.resolution);
  std::vector<Change*> family;
  std::vector<double> p;
  for (Scoped& scoped : all)
    if (Change& change = scoped.change;
        scoped.scope != Scope::step && std::max(change.before_ns, change.after_ns) > least) {
      family.push_back(&change);
      p.push_back(change.p);
    }
  const auto stands_out = [least](const Change& change) {
    return (change.low > 0 || change.high < 0) && std::abs(change.delta()) > least;
  };
  const std::vector<bool> is_rejected = rejected(p, options.false_discoveries);
  for (std::size_t i = 0; i < family.size(); ++i)
    family[i]->is_significant = is_rejected[i] && stands_out(*family[i]);
  all.front().change.is_significant = stands_out(all.front().change);
  return all;
}

// The step first, then parts, modules and calls, each with the largest change first.
void put_in_order(std::vector<Scoped>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Scoped& a, const Scoped& b) {
    if (a.scope != b.scope) return a.scope < b.scope;
    return std::abs(a.change.delta()) > std::abs(b.change.delta());
  });
}

// Calls stand for the kernels that they are; medians do not add up, so that what is left over is a
// separate line.
std::vector<std::pair<std::string, double>> waterfall(const std::vector<Scoped>& all) {
  std::vector<std::pair<std::string, double>> lines;
  double calls = 0, sum = 0, step = 0;
  for (const Scoped& scoped : all) {
    if (scoped.scope == Scope::step) step = scoped.change.delta();
    if (scoped.scope != Scope::call || !scoped.change.is_significant) continue;
    lines.emplace_back(title_of(scoped.change), scoped.change.delta());
    calls += lines.back().second;
  }
  sum = calls;
  const bool has_calls = !lines.empty();
  for (const Scoped& scoped : all) {
    if (scoped.scope != Scope::part || !scoped.change.is_significant) continue;
    const bool kernels = scoped.change.what == "kernels" && has_calls;
    lines.emplace_back(kernels ? "other kernels" : scoped.change.what,
                       scoped.change.delta() - (kernels ? calls : 0));
    sum += lines.back().second;
  }
  lines.emplace_back("rest", step - sum);
  return lines;
}

void check_steps(const Sides& sides, std::vector<std::string>& warnings) {
  for (std::size_t r = 0; r < sides.runs.size(); ++r) {
    const char* const which = sides.is_halves    ? "a half of the run"
                              : r < sides.before ? "the run before"
                                                 : "the run after";
    const std::size_t values = sides.runs[r].front().ns.size(), update = sides.updates[r];
    const std::string count = update > 1
                                  ? fmt::format("{} whole updates of {} steps", values, update)
                                  : fmt::format("{} steps", values);
    if (values < least_steps)
      fail<UsageError>("{} has {} to compare, which are too few: record {} or more{}", which, count,
                       rough_steps, update > 1 ? " updates" : "");
    if (values < rough_steps)
      warnings.push_back(fmt::format("{} has only {}: intervals are rough", which, count));
  }
}

// What the long ones of a run's steps add to the mean beyond its level, without the slowest 1 %,
// which any run may have.
double seldom_of(const Series& step) {
  std::vector<double> ns = step.ns;
  std::ranges::sort(ns);
  ns.resize(ns.size() - (ns.size() + 99) / 100);
  return std::max(0.0, level_of(ns) - level_of(part_medians(step.ns, parts_of(step.ns.size()))));
}

// A level is of medians: what a few steps wait, as one of 16 for a batch, is not in it.
void note_seldom(const Sides& sides, std::vector<std::string>& warnings) {
  double seldom[2] = {0, 0}, level = 0;
  for (std::size_t r = 0; r < sides.runs.size(); ++r) {
    const Series& step = sides.runs[r].front();
    const bool is_after = r >= sides.before;
    const std::size_t count = is_after ? sides.runs.size() - sides.before : sides.before;
    seldom[is_after] += seldom_of(step) / static_cast<double>(count);
    if (!is_after)
      level +=
          level_of(part_medians(step.ns, parts_of(step.ns.size()))) / static_cast<double>(count);
  }
  if (std::abs(seldom[1] - seldom[0]) <= noticed_share * level) return;
  warnings.push_back(
      fmt::format("a few long steps add {} per step before and {} after; the table compares usual "
                  "steps and does not show them; `warpstep report` names stalls and slow steps",
                  quantity(seldom[0], Unit::ns), quantity(seldom[1], Unit::ns)));
}

Comparison compared(const Sides& sides, const CompareOptions& options,
                    std::vector<std::string> warnings) {
  std::vector<Scoped> all = test_all(sides, options);
  put_in_order(all);
  const Scoped& step = all.front();
  Comparison found{.warnings = std::move(warnings),
                   .waterfall = waterfall(all),
                   .runs_before = sides.before,
                   .runs_after = sides.runs.size() - sides.before,
                   .may_be_machine_ns = step.machine};
  if (step.change.before_ns > 0) {
    found.by_chance = std::max(options.least_share, step.least / step.change.before_ns);
    found.smallest_change = found.by_chance + step.hidden / step.change.before_ns;
  }
  for (Scoped& scoped : all) found.changes.push_back(std::move(scoped.change));
  return found;
}

// The runs of a side count as equal.
void note_unequal(const std::vector<ComparedRun>& side, const char* which,
                  std::vector<std::string>& warnings) {
  for (std::size_t r = 1; r < side.size(); ++r) {
    const Footing footing = compare_footing(*side.front().session, *side[r].session, true);
    for (const auto* list : {&footing.by_intent, &footing.by_machine})
      for (const FootingDifference& difference : *list)
        if (difference.what != "seed")
          warnings.push_back(
              fmt::format("the runs {} differ among themselves: {} is {} in the "
                          "first and {} in run {}",
                          which, difference.what, difference.before, difference.after, r + 1));
  }
}

std::string recording_of(const Session& session, const char* key) {
  return fields::text(fields::child(session.stamp, "profiler"), key);
}

// What the recording of one side only did to it.
void note_recording(const std::vector<ComparedRun>& before, const std::vector<ComparedRun>& after,
                    std::vector<std::string>& warnings) {
  const Session &first = *before.front().session, &second = *after.front().session;
  const bool locked = !recording_of(first, "counters").empty();
  if (locked == recording_of(second, "counters").empty())
    warnings.push_back(
        fmt::format("the GPU's clocks were locked by PM sampling in the run {} only: give "
                    "--profile-counters to both or to none",
                    locked ? "before" : "after"));
  const std::string b = recording_of(first, "level"), a = recording_of(second, "level");
  if (b != a && !b.empty() && !a.empty())
    warnings.push_back(fmt::format(
        "recorded with --profile {} before and {} after, which does not cost the same", b, a));
  for (const auto& [side, which] : {std::pair{&before, "before"}, std::pair{&after, "after"}})
    for (const ComparedRun& run : *side)
      if (const Losses& lost = run.session->losses; lost.entries + lost.activities > 0)
        warnings.push_back(
            fmt::format("the run {} lost {} records: sums of its calls may be too "
                        "small",
                        which, lost.entries + lost.activities));
}

// What the machine may have cost each side, as a share of its steps.
void find_disturbances(const std::vector<const Session*>& runs, Sides& sides,
                       std::vector<std::string>& warnings) {
  std::vector<Disturbance> found;
  for (const Session* run : runs) found.push_back(disturbance_of(*run));
  const std::vector<double> lost = lost_shares(found);
  double others[2] = {0, 0}, stolen[2] = {0, 0};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const bool is_after = r >= sides.before;
    const auto count = static_cast<double>(is_after ? runs.size() - sides.before : sides.before);
    (is_after ? sides.lost_after : sides.lost_before) += lost[r] / count;
    others[is_after] += found[r].others / count;
    stolen[is_after] += found[r].stolen / count;
  }
  if (std::max(sides.lost_before, sides.lost_after) < noticed_share) {
    sides.lost_before = sides.lost_after = 0;
    return;
  }
  warnings.push_back(fmt::format(
      "other programs used {:.2f} cores before and {:.2f} after{}; they or lower clocks may have "
      "cost up to {} of a step before and {} after",
      others[0], others[1],
      std::max(stolen[0], stolen[1]) < noticed_share
          ? ""
          : fmt::format(", and the hypervisor gave {:.2f} before and {:.2f} after to other virtual "
                        "machines",
                        stolen[0], stolen[1]),
      quantity(std::min(1.0, sides.lost_before), Unit::share),
      quantity(std::min(1.0, sides.lost_after), Unit::share)));
}

}  // namespace

Comparison compare(const std::vector<ComparedRun>& before, const std::vector<ComparedRun>& after,
                   const CompareOptions& options) {
  Footing footing = compare_footing(*before.front().session, *after.front().session, options.force);
  std::vector<std::string> warnings = std::exchange(footing.warnings, {});
  note_unequal(before, "before", warnings);
  note_unequal(after, "after", warnings);
  note_recording(before, after, warnings);
  std::vector<const Session*> runs;
  Sides sides{.runs = {}, .before = before.size()};
  for (const auto* side : {&before, &after})
    for (const ComparedRun& run : *side) {
      runs.push_back(run.session);
      if (run.session->computes_on_host()) continue;
      sides.on_host = false;
      sides.resolution = device_resolution_ns;
    }
  const std::vector<ChosenSteps> chosen = choose_steps(runs, least_steps);
  if (chosen.front().calls.empty())
    warnings.emplace_back(
        "not all runs have a window of 8 steps or more (with --accumulate also of 4 whole "
        "updates): compared by per-step totals, without calls");
  for (std::size_t r = 0; r < runs.size(); ++r) {
    sides.runs.push_back(series_of(*runs[r], chosen[r], options.depth));
    sides.updates.push_back(chosen[r].update);
  }
  check_steps(sides, warnings);
  find_disturbances(runs, sides, warnings);
  note_seldom(sides, warnings);
  Comparison found = compared(sides, options, std::move(warnings));
  found.footing = std::move(footing);
  found.scores = score_changes(before, after);
  word(found);
  return found;
}

Comparison compare(const Session& before, const Session& after, const CompareOptions& options) {
  return compare({{&before, score_of(before)}}, {{&after, score_of(after)}}, options);
}

namespace {

// By value of a series over these steps. Every other one; of windows every other begins with the
// second half, as a window's first step may differ from its others.
std::vector<std::size_t> halves_of(const Session& session, const std::vector<std::size_t>& steps,
                                   std::size_t update) {
  std::vector<std::uint64_t> begins;
  for (const Window& window : session.windows) begins.push_back(window.first_step);
  std::ranges::sort(begins);
  std::vector<std::size_t> halves;
  std::ptrdiff_t window = 0;  // so many have begun
  for (std::size_t i = 0, place = 0; i + update <= steps.size(); i += update, ++place) {
    const auto after = std::ranges::upper_bound(begins, session.steps[steps[i]].step);
    if (std::exchange(window, after - begins.begin()) != after - begins.begin()) place = 0;
    halves.push_back((place + static_cast<std::size_t>(window)) % 2);
  }
  return halves;
}

}  // namespace

// Every other step; with --accumulate every other update.
Comparison compare_halves(const Session& session, const CompareOptions& options) {
  const ChosenSteps chosen = choose_steps({&session}, 2 * least_steps).front();
  Sides sides{.runs = {},
              .before = 1,
              .updates = {chosen.update, chosen.update},
              .resolution = session.computes_on_host() ? host_resolution_ns : device_resolution_ns,
              .is_halves = true};
  const std::vector<std::size_t> of_totals = halves_of(session, chosen.totals, chosen.update),
                                 of_calls = halves_of(session, chosen.calls, chosen.update);
  for (const std::size_t half : {0U, 1U}) {
    sides.runs.push_back(series_of(session, chosen, options.depth));
    for (Series& series : sides.runs.back()) {
      const std::vector<std::size_t>& halves = is_of_calls(series.scope) ? of_calls : of_totals;
      std::vector<double> ns;
      for (std::size_t i = 0; i < series.ns.size(); ++i)
        if (halves[i] == half) ns.push_back(series.ns[i]);
      series.ns = std::move(ns);
    }
  }
  CompareOptions within = options;
  within.between_runs = 0;  // the halves are one run
  std::vector<std::string> warnings;
  check_steps(sides, warnings);
  Comparison found = compared(sides, within, std::move(warnings));
  found.is_halves = true;
  word(found);
  return found;
}

Table to_table(const Comparison& comparison) {
  Table table{.key = "compare",
              .title = "What changed",
              .note =
                  "Levels per step, with --accumulate means over whole updates; significant: the "
                  "interval excludes 0, the change is at "
                  "least 1 % of the step, and survives the correction for many comparisons.",
              .columns = {{"what", "what", Unit::none},
                          {"phase", "phase", Unit::none},
                          {"before_ns", "before", Unit::ns},
                          {"after_ns", "after", Unit::ns},
                          {"change_ns", "change", Unit::ns},
                          {"change", "change %", Unit::share},
                          {"of_step", "of the step", Unit::share},
                          {"low_ns", "from", Unit::ns},
                          {"high_ns", "to", Unit::ns},
                          {"p", "p", Unit::none},
                          {"significant", "significant", Unit::none}},
              .rows = {}};
  const double step_ns = comparison.changes.empty() ? 0 : comparison.changes.front().before_ns;
  const auto share = [](double ns, double of) { return of > 0 ? Cell(ns / of) : Cell(); };
  for (const Change& change : comparison.changes)
    table.rows.push_back({change.what, change.phase, change.before_ns, change.after_ns,
                          change.delta(), share(change.delta(), change.before_ns),
                          share(change.delta(), step_ns), change.low, change.high,
                          std::max(change.p, 0.0001),
                          std::string(change.is_significant ? "yes" : "no")});
  return table;
}

}  // namespace warpstep::profiler
