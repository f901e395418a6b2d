// warpstep compare: the differences between runs, and which are significant.
#include "profiler/analysis/compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "profiler/analysis/analysis.h"
#include "profiler/export/export.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/summary.h"

namespace warpstep::tools {
namespace {

struct CompareOptions {
  std::vector<std::string> runs, against;
  bool split = false;
  bool force = false;
  bool json = false;
  bool html = false;
  int depth = static_cast<int>(profiler::CompareOptions().depth);
};

Json changes_json(const profiler::Comparison& comparison) {
  Json rows = profiler::to_json(profiler::to_table(comparison));
  for (Json& row : rows) row["significant"] = row["significant"] == "yes";
  return rows;
}

Json as_json(const profiler::Comparison& comparison) {
  Json waterfall = Json::array(), scores = Json::array();
  for (const auto& [what, ns] : comparison.waterfall)
    waterfall.push_back({{"what", what}, {"change_ns", ns}});
  for (const profiler::ScoreChange& score : comparison.scores)
    scores.push_back({{"what", score.what},
                      {"before", score.before},
                      {"after", score.after},
                      {"before_range", {score.before_low, score.before_high}},
                      {"after_range", {score.after_low, score.after_high}}});
  const auto differences = [](const std::vector<profiler::FootingDifference>& list) {
    Json all = Json::array();
    for (const profiler::FootingDifference& difference : list)
      all.push_back(
          {{"what", difference.what}, {"before", difference.before}, {"after", difference.after}});
    return all;
  };
  return {{"verdict", comparison.verdict},
          {"step_changed", comparison.changes.front().is_significant},
          {"smallest_change", comparison.smallest_change},
          {"runs", {{"before", comparison.runs_before}, {"after", comparison.runs_after}}},
          {"equal_footing", comparison.footing.is_equal()},
          {"differs_by_intent", differences(comparison.footing.by_intent)},
          {"differs_by_machine", differences(comparison.footing.by_machine)},
          {"warnings", comparison.warnings},
          {"changes", changes_json(comparison)},
          {"waterfall", std::move(waterfall)},
          {"scores", std::move(scores)}};
}

void print_differences(const char* title,
                       const std::vector<profiler::FootingDifference>& differences) {
  if (differences.empty()) return;
  fmt::print("{}\n", title);
  for (const profiler::FootingDifference& difference : differences)
    fmt::print("  {}\n", printable(difference.text()));
}

void print(const profiler::Comparison& comparison) {
  const profiler::Footing& footing = comparison.footing;
  print_differences("Differs by intent:", footing.by_intent);
  print_differences("Differs by machine:", footing.by_machine);
  if (!footing.by_intent.empty() || !footing.by_machine.empty()) fmt::print("\n");
  fmt::print("{}\n\n", printable(comparison.verdict));
  if (!comparison.scores.empty())
    fmt::print("{}\n", profiler::to_text(profiler::scores_table(comparison)));
  fmt::print("{}", profiler::to_text(profiler::to_table(comparison)));
  for (const std::string& warning : comparison.warnings) fmt::print("- {}\n", printable(warning));
}

// The comparison, and after it the report of the first run after.
void write_page(const ProfiledRun& run, const profiler::Comparison& comparison) {
  const std::filesystem::path page = run.directory() / "comparison.html";
  write_atomically(page, profiler::html_report(run.session, analyse_in_job(run), &comparison));
  say("wrote {}\n", page.string());
}

// A folder of `train --repeat` stands for its runs, 1, 2, ...
std::vector<std::string> runs_of(const std::vector<std::string>& given) {
  namespace fs = std::filesystem;
  std::vector<std::string> runs;
  std::error_code none;
  for (const std::string& run : given) {
    const auto repeated = [&](std::size_t number) {
      return (fs::path(run) / std::to_string(number)).string();
    };
    const bool is_folder =
        !fs::exists(fs::path(run) / "session.prof", none) && fs::is_directory(repeated(1), none);
    if (!is_folder) runs.push_back(run);
    for (std::size_t i = 1; is_folder && fs::is_directory(repeated(i), none); ++i)
      runs.push_back(repeated(i));
  }
  return runs;
}

// A run that counts twice would make intervals too narrow.
void refuse_twice(const std::vector<std::string>& runs) {
  std::set<std::filesystem::path> seen;
  for (const std::string& run : runs)
    if (!seen.insert(std::filesystem::weakly_canonical(run)).second)
      fail<UsageError>("{} is given twice on one side; name each run once", run);
}

std::vector<ProfiledRun> open_all(const std::vector<std::string>& names) {
  std::vector<ProfiledRun> runs;
  for (const std::string& name : names) runs.push_back(open_profiled_run(name));
  return runs;
}

// What the session knows, replaced by what summary.json has.
profiler::RunScore score_of(const ProfiledRun& run) {
  profiler::RunScore score = profiler::score_of(run.session);
  if (run.file.filename() != "session.prof") return score;
  const Json summary = own_summary(run.directory());
  const auto read = [&](const char* part, const char* key, std::optional<double>& to) {
    const auto found = summary.find(part);
    if (found == summary.end() || !found->is_object() || !found->contains(key)) return;
    if (const Json& value = found->at(key); value.is_number()) to = value.get<double>();
  };
  read("training", "loss", score.training_loss);
  read("training", "accuracy", score.training_accuracy);
  read("test", "loss", score.validation_loss);
  read("test", "accuracy", score.validation_accuracy);
  return score;
}

std::vector<profiler::ComparedRun> compared(const std::vector<ProfiledRun>& runs) {
  std::vector<profiler::ComparedRun> all;
  for (const ProfiledRun& run : runs) all.push_back({&run.session, score_of(run)});
  return all;
}

// The runs of both sides; `compare A B` is short for `compare A --against B`.
std::pair<std::vector<std::string>, std::vector<std::string>> sides_of(CompareOptions options) {
  if (options.split && (options.runs.size() > 1 || !options.against.empty()))
    fail<UsageError>("--split compares the steps of one run, but more were given");
  if (options.against.empty() && options.runs.size() == 2) {
    options.against = {options.runs.back()};
    options.runs.pop_back();
  }
  if (!options.split && options.against.empty()) {
    if (options.runs.size() == 1)
      fail<UsageError>(
          "a second run is missing; --split compares the halves of one, as a noise floor");
    fail<UsageError>("which of the {} runs are after the change? Name them after --against",
                     options.runs.size());
  }
  const std::vector<std::string> before = runs_of(options.runs), after = runs_of(options.against);
  if (options.split && before.size() > 1)
    fail<UsageError>("--split compares the steps of one run, but {} is a folder of {}",
                     options.runs.front(), before.size());
  refuse_twice(before);
  refuse_twice(after);
  return {before, after};
}

int compare_runs(const CompareOptions& options) {
  const auto [first, second] = sides_of(options);
  const profiler::CompareOptions how{.force = options.force,
                                     .depth = static_cast<std::size_t>(options.depth)};
  const std::vector<ProfiledRun> before = open_all(first), after = open_all(second);
  const profiler::Comparison comparison =
      options.split ? profiler::compare_halves(before.front().session, how)
                    : profiler::compare(compared(before), compared(after), how);
  if (options.json)
    fmt::print("{}\n", printed(as_json(comparison), 2));
  else
    print(comparison);
  if (options.html) write_page(options.split ? before.front() : after.front(), comparison);
  return done;
}

Run declare_compare(Parser parser) {
  auto options = std::make_shared<CompareOptions>();
  parser.add({.name = "runs",
              .variable = &options->runs,
              .help = "the run before and the run after, or with --against all runs before: run "
                      "directories with a session.prof, folders of train --repeat, .prof files",
              .type = "RUN",
              .required = true});
  parser.add({.name = "--against",
              .variable = &options->against,
              .help = "the runs after; several runs per side show smaller changes",
              .type = "RUN"});
  parser.add({.name = "--split",
              .variable = &options->split,
              .help = "compare odd with even steps of one run: measure the noise floor"});
  parser.add({.name = "--force",
              .variable = &options->force,
              .help = "also compare runs with different devices, models or batches"});
  parser.add({.name = "--depth",
              .variable = &options->depth,
              .help = "also compare the model's modules, this many names deep: 1 \"layer1\", 2 "
                      "\"layer1.0\"; 0: without them",
              .check = in_range(0, 16),
              .type = "N"});
  parser.add({.name = "--json", .variable = &options->json, .help = "print the result as JSON"});
  parser.add({.name = "--html",
              .variable = &options->html,
              .help = "write comparison.html next to the session of the run after"});
  parser.footer(
      "Examples:\n  warpstep compare runs/first runs/second\n"
      "  warpstep compare runs/a1 runs/a2 runs/a3 --against runs/b1 runs/b2 runs/b3\n"
      "  warpstep compare --split runs/first");
  return [options] { return compare_runs(*options); };
}

const Command compare_command("compare", "compare runs and list the significant changes",
                              declare_compare);

}  // namespace
}  // namespace warpstep::tools
