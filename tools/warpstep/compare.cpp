// warpstep compare: what changed between two runs, and how sure that is.
#include "profiler/analysis/compare.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

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
  return {{"verdict", comparison.verdict},
          {"warnings", comparison.warnings},
          {"changes", profiler::to_json(profiler::to_table(comparison))},
          {"waterfall", std::move(waterfall)}};
}

void print(const profiler::Comparison& comparison) {
  fmt::print("{}\n\n{}", comparison.verdict, profiler::to_text(profiler::to_table(comparison)));
  for (const std::string& warning : comparison.warnings) fmt::print("- {}\n", warning);
}

// The page is of the later run, with a section of what changed.
void write_page(const ProfiledRun& run, const profiler::Comparison& comparison) {
  const std::filesystem::path page = run.directory() / "comparison.html";
  write_atomically(page,
                   profiler::html_report(run.session, profiler::analyse(run.session), &comparison));
  say("wrote {}\n", page.string());
}

int compare_runs(const CompareOptions& options) {
  if (options.split && !options.after.empty())
    fail<UsageError>("--split takes one run, two were given");
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

Run declare_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  const char* what = "run directory with a session.prof, or a .prof file";
  app.add_option("before", options->before, what)->required()->type_name("RUN_A");
  app.add_option("after", options->after, what)->type_name("RUN_B");
  app.add_flag("--split", options->split,
               "odd against even steps of one run: how much noise looks like a change");
  app.add_flag("--force", options->force, "also runs of different devices, models or batches");
  app.add_flag("--json", options->json, "the result as JSON");
  app.add_flag("--html", options->html, "write comparison.html beside the later run's session");
  app.footer(
      "Example:\n  warpstep compare runs/first runs/second\n"
      "  warpstep compare --split runs/first");
  return [options] { return compare_runs(*options); };
}

const Command compare_command("compare", "what changed between two runs, and how sure that is",
                              declare_compare);

}  // namespace
}  // namespace warpstep::tools
