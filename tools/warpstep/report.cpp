// warpstep report: the profile of a run with advice, on the terminal and as one page.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "profiler/analysis/analysis.h"
#include "profiler/export/export.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/try.h"

namespace warpstep::tools {
namespace {

struct ReportOptions {
  std::string run;
  std::string output;
  int depth = profiler::TerminalOptions().depth;
  bool json = false;
  bool tb_compatible = false;
};

Json as_json(const profiler::Session& session, const profiler::Analysis& analysis) {
  Json tables = Json::object();
  for (const profiler::Table& table : profiler::tables(session, analysis))
    tables[table.key] = profiler::to_json(table);
  const profiler::Trust& trust = analysis.trust;
  const bool is_known = trust.cost != profiler::Trust::Cost::unknown;
  const auto known = [&](double value) { return is_known ? Json(value) : Json(); };
  Json trusted{{"is_disturbed", trust.is_disturbed},
               {"overhead_ns", known(trust.overhead_ns)},
               {"overhead_share", known(trust.overhead_share)},
               {"overhead_error_ns", known(trust.overhead_error_ns)},
               {"clock_error_ns", trust.clock_error_ns},
               {"lost_spans", trust.losses.entries},
               {"lost_activities", trust.losses.activities},
               {"damaged_chunks", trust.losses.damaged_chunks},
               {"cut_bytes", trust.losses.cut_bytes}};
  return {{"stamp", session.stamp},
          {"notes", trust.notes},
          {"trust", std::move(trusted)},
          {"tables", std::move(tables)}};
}

// Next to the session: RUN/report.html, or NAME.html for NAME.prof; -tb for --tb-compatible.
std::filesystem::path page_path(const ReportOptions& options, const ProfiledRun& run) {
  if (!options.output.empty()) return options.output;
  const std::string stem =
      run.file.filename() == "session.prof" ? "report" : run.file.stem().string();
  return run.directory() / (stem + (options.tb_compatible ? "-tb.html" : ".html"));
}

// Printing needs no page: only one that was asked for must be written.
void write_page(const ReportOptions& options, const ProfiledRun& run,
                const profiler::Analysis& analysis) {
  const std::filesystem::path page = page_path(options, run);
  try {
    write_atomically(page, profiler::html_report(run.session, analysis));
  } catch (const Error& error) {
    if (!options.output.empty()) throw;
    say("warning: the page was not written: {}; -o FILE writes it elsewhere\n", error.what());
    return;
  }
  say("wrote {}\n", page.string());
}

int report(const ReportOptions& options) {
  const ProfiledRun run = open_profiled_run(options.run);
  check_output(page_path(options, run), run);
  profiler::Analysis analysis = analyse_in_job(run);
  if (options.tb_compatible) {
    analysis.breakdown = profiler::break_down(run.session, {.tb_compatible = true});
    analysis.devices = profiler::device_metrics(run.session, {.tb_compatible = true});
  }
  if (options.json) {
    fmt::print("{}\n", printed(as_json(run.session, analysis), 2));
  } else {
    fmt::print("{}", profiler::terminal_report(run.session, analysis, {.depth = options.depth}));
    fmt::print("{}", line_that_tries(analysis, run.directory()));
  }
  write_page(options, run, analysis);
  return done;
}

Run declare_report(Parser parser) {
  auto options = std::make_shared<ReportOptions>();
  parser.add({.name = "run",
              .variable = &options->run,
              .help = "run directory with a session.prof, or a .prof file",
              .type = "RUN",
              .required = true});
  parser.add(
      {.name = "-o,--output",
       .variable = &options->output,
       .help = "file of the page; otherwise report.html or report-tb.html next to the session",
       .type = "FILE"});
  parser.add({.name = "--depth",
              .variable = &options->depth,
              .help = "levels of the tree of modules on the terminal: 1 the model's parts, then "
                      "blocks, layers and calls; 0 without it",
              .check = in_range(0, 16),
              .type = "N"});
  parser.add({.name = "--json",
              .variable = &options->json,
              .help = "print every table as one JSON object, in base units"});
  parser.add({.name = "--tb-compatible",
              .variable = &options->tb_compatible,
              .help = "break steps down by the categories and rules of torch_tb_profiler"});
  parser.footer("Example:\n  warpstep report runs/first");
  return [options] { return report(*options); };
}

const Command report_command("report", "show where a run spends its time, with advice",
                             declare_report);

}  // namespace
}  // namespace warpstep::tools
