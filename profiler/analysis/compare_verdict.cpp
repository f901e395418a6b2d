// How a comparison words what it found, and what the runs had learned.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "profiler/analysis/compare.h"

namespace warpstep::profiler {
namespace {

// Options that make a step another piece of work.
constexpr std::array<std::string_view, 16> work_options{
    "model",      "model_option", "batch",      "precision",      "data", "data.fingerprint",
    "sequence",   "accumulate",   "transforms", "optimizer",      "loss", "recompute",
    "exact_math", "global_batch", "sync_bn",    "shard_optimizer"};

std::string share_text(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string work_text(const Footing& footing) {
  std::string text;
  for (const FootingDifference& difference : footing.by_intent)
    if (std::ranges::find(work_options, difference.what) != work_options.end())
      text += (text.empty() ? "The runs do not do the same work: " : "; ") + difference.text();
  return text.empty() ? text : text + ".";
}

// What these runs can show at all.
std::string power_text(const Comparison& found) {
  const std::string least =
      fmt::format("{} of a step ({})", share_text(found.smallest_change),
                  quantity(found.smallest_change * found.changes.front().before_ns, Unit::ns));
  if (found.is_halves)
    return fmt::format("Within this run, noise hides changes below {}; equal runs differ by more.",
                       least);
  if (found.runs_before == 1 && found.runs_after == 1)
    return fmt::format("With one run per side, a change below {} may be {}.", least,
                       found.smallest_change > found.by_chance
                           ? "chance, other work on the machine or lower clocks"
                           : "chance");
  return fmt::format("{} before and {} after show changes of {} or more.",
                     found.runs_before == 1 ? "1 run" : fmt::format("{} runs", found.runs_before),
                     found.runs_after, least);
}

std::string interval_text(const Change& step) {
  return fmt::format("95 % interval {} to {}", quantity(step.low, Unit::ns),
                     quantity(step.high, Unit::ns));
}

std::string both_text(const Change& step) {
  const double percent = step.before_ns > 0 ? 100 * step.delta() / step.before_ns : 0;
  return fmt::format("{} before, {} after, {:+.1f} %", quantity(step.before_ns, Unit::ns),
                     quantity(step.after_ns, Unit::ns),
                     std::abs(percent) < 0.05 ? 0.0 : percent);  // never "-0.0 %"
}

std::string step_text(const Comparison& found) {
  const Change& step = found.changes.front();
  if (step.is_significant)
    return fmt::format("A step takes {} {} ({}; {})", quantity(std::abs(step.delta()), Unit::ns),
                       step.delta() > 0 ? "longer" : "less", both_text(step), interval_text(step));
  const double own = std::abs(step.delta()) / std::max(1.0, step.before_ns);
  if (own > found.by_chance && found.may_be_machine_ns > 0)
    return fmt::format(
        "No significant difference: a step takes {}, but other work on the machine or lower clocks "
        "may account for {} of the change: repeat on a quiet machine, or with several runs per "
        "side",
        both_text(step),
        quantity(std::min(found.may_be_machine_ns, std::abs(step.delta())), Unit::ns));
  return fmt::format("No significant difference: a step takes {} ({})", both_text(step),
                     interval_text(step));
}

std::string part_text(const Comparison& found) {
  const Change& step = found.changes.front();
  if (found.waterfall.size() < 2) return "";
  const auto& largest = *std::max_element(
      found.waterfall.begin(), found.waterfall.end() - 1,
      [](const auto& a, const auto& b) { return std::abs(a.second) < std::abs(b.second); });
  const bool is_most = step.is_significant && 2 * largest.second / step.delta() > 1;
  return fmt::format("; {}: {}, {}{}", is_most ? "most of it" : "the largest part", largest.first,
                     largest.second > 0 ? "+" : "", quantity(largest.second, Unit::ns));
}

}  // namespace

std::string title_of(const Change& change) {
  const auto has = [&](std::string_view part) {
    return change.what.find(part) != std::string::npos;
  };
  // Names of calls may have it: "fc1/linear.wgrad", "conv1/conv.dgrad+relu", "update_all".
  const bool is_said = change.phase.empty() || has(".dgrad") || has(".wgrad") || has(change.phase);
  return is_said ? change.what : change.what + " " + change.phase;
}

void word(Comparison& found) {
  found.basis = power_text(found);
  for (const std::string& part : {footing_verdict(found.footing), work_text(found.footing)})
    if (!part.empty()) found.basis += " " + part;
  found.headline = step_text(found) + part_text(found) + ".";
  found.verdict = found.basis + " " + found.headline;
}

RunScore score_of(const Session& session) {
  RunScore score;
  double loss = 0, samples = 0, correct = 0;
  for (const Step& step : session.steps) {
    if (step.epoch != session.steps.back().epoch || step.samples <= 0) continue;
    loss += step.loss * static_cast<double>(step.samples);
    correct += static_cast<double>(step.correct);
    samples += static_cast<double>(step.samples);
  }
  if (samples > 0 && std::isfinite(loss)) {
    score.training_loss = loss / samples;
    score.training_accuracy = correct / samples;
  }
  return score;
}

std::vector<ScoreChange> score_changes(const std::vector<ComparedRun>& before,
                                       const std::vector<ComparedRun>& after) {
  struct Kind {
    const char* what;
    std::optional<double> RunScore::*value;
    bool is_share;
  };
  constexpr std::array kinds{Kind{"validation accuracy", &RunScore::validation_accuracy, true},
                             Kind{"validation loss", &RunScore::validation_loss, false},
                             Kind{"training accuracy", &RunScore::training_accuracy, true},
                             Kind{"training loss", &RunScore::training_loss, false}};
  std::vector<ScoreChange> changes;
  for (const Kind& kind : kinds) {
    ScoreChange change{.what = kind.what, .is_share = kind.is_share};
    const auto add = [&](const std::vector<ComparedRun>& side, double& mean, double& low,
                         double& high) {
      std::vector<double> values;
      for (const ComparedRun& run : side)
        if (const std::optional<double>& value = run.score.*kind.value) values.push_back(*value);
      if (values.empty() || values.size() < side.size()) return false;
      for (const double value : values) mean += value / static_cast<double>(values.size());
      low = std::ranges::min(values);
      high = std::ranges::max(values);
      return true;
    };
    if (add(before, change.before, change.before_low, change.before_high) &&
        add(after, change.after, change.after_low, change.after_high))
      changes.push_back(change);
  }
  return changes;
}

Table scores_table(const Comparison& comparison) {
  Table table{.key = "scores",
              .title = "What the runs had learned at their ends",
              .columns = {{"what", "what"}, {"before", "before"}, {"after", "after"}},
              .rows = {}};
  for (const ScoreChange& change : comparison.scores) {
    const auto value = [&](double x) {
      return change.is_share ? share_text(x) : fmt::format("{:.4f}", x);
    };
    const auto side = [&](double mean, double low, double high) {
      return low == high ? value(mean)
                         : fmt::format("{} ({} to {})", value(mean), value(low), value(high));
    };
    table.rows.push_back({change.what, side(change.before, change.before_low, change.before_high),
                          side(change.after, change.after_low, change.after_high)});
  }
  return table;
}

}  // namespace warpstep::profiler
