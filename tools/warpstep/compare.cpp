// warpstep compare: the differences between two runs, and which are significant.
#include "profiler/analysis/compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/analysis/analysis.h"
#include "profiler/export/export.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::string before, after;
  bool split = false;
  bool force = false;
  bool json = false;
  bool html = false;
};

Json as_json(const profiler::Comparison& comparison) {
  Json waterfall = Json::array();
  for (const auto& [what, ns] : comparison.waterfall)
    waterfall.push_back({{"what", what}, {"change_ns", ns}});
  const auto differences = [](const std::vector<profiler::FootingDifference>& list) {
    Json all = Json::array();
    for (const profiler::FootingDifference& difference : list)
      all.push_back(
          {{"what", difference.what}, {"before", difference.before}, {"after", difference.after}});
    return all;
  };
  return {{"verdict", comparison.verdict},
          {"equal_footing", comparison.footing.is_equal()},
          {"differs_by_intent", differences(comparison.footing.by_intent)},
          {"differs_by_machine", differences(comparison.footing.by_machine)},
          {"warnings", comparison.warnings},
          {"changes", profiler::to_json(profiler::to_table(comparison))},
          {"waterfall", std::move(waterfall)}};
}

void print_differences(const char* title,
                       const std::vector<profiler::FootingDifference>& differences) {
  if (differences.empty()) return;
  fmt::print("{}\n", title);
  for (const profiler::FootingDifference& difference : differences)
    fmt::print("  {}\n", difference.text());
}

void print(const profiler::Comparison& comparison) {
  const profiler::Footing& footing = comparison.footing;
  print_differences("Differs by intent:", footing.by_intent);
  print_differences("Differs by machine:", footing.by_machine);
  if (!footing.by_intent.empty() || !footing.by_machine.empty()) fmt::print("\n");
  fmt::print("{}\n\n{}", comparison.verdict, profiler::to_text(profiler::to_table(comparison)));
  for (const std::string& warning : comparison.warnings) fmt::print("- {}\n", warning);
}

// The page of the later run, with a section on the changes.
void write_page(const ProfiledRun& run, const profiler::Comparison& comparison) {
  const std::filesystem::path page = run.directory() / "comparison.html";
  write_atomically(page,
                   profiler::html_report(run.session, profiler::analyse(run.session), &comparison));
  say("wrote {}\n", page.string());
}

int compare_runs(const CompareOptions& options) {
  if (options.split && !options.after.empty())
    fail<UsageError>("--split compares the steps of one run, but two runs were given");
  if (!options.split && options.after.empty())
    fail<UsageError>(
        "a second run is missing; --split compares the halves of one, as a noise floor");
  const profiler::CompareOptions how{.force = options.force};
  const ProfiledRun before = open_profiled_run(options.before);
  const ProfiledRun after = options.split ? ProfiledRun{} : open_profiled_run(options.after);
  const profiler::Comparison comparison =
      options.split ? profiler::compare_halves(before.session, how)
                    : profiler::compare(before.session, after.session, how);
  if (options.json)
    fmt::print("{}\n", as_json(comparison).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print(comparison);
  if (options.html) write_page(options.split ? before : after, comparison);
  return done;
}

Run declare_compare(Parser parser) {
  auto options = std::make_shared<CompareOptions>();
  const char* what = "run directory with a session.prof, or a .prof file";
  parser.add({.name = "before",
              .variable = &options->before,
              .help = what,
              .type = "RUN_A",
              .required = true});
  parser.add({.name = "after", .variable = &options->after, .help = what, .type = "RUN_B"});
  parser.add({.name = "--split",
              .variable = &options->split,
              .help = "compare odd with even steps of one run: measure the noise floor"});
  parser.add({.name = "--force",
              .variable = &options->force,
              .help = "also compare runs with different devices, models or batches"});
  parser.add({.name = "--json", .variable = &options->json, .help = "print the result as JSON"});
  parser.add({.name = "--html",
              .variable = &options->html,
              .help = "write comparison.html next to the later run's session"});
  parser.footer(
      "Example:\n  warpstep compare runs/first runs/second\n"
      "  warpstep compare --split runs/first");
  return [options] { return compare_runs(*options); };
}

const Command compare_command("compare", "compare two runs and list the significant changes",
                              declare_compare);

}  // namespace
}  // namespace warpstep::tools
