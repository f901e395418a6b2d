// warpstep export: a run's profile in other programs' formats.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "profiler/analysis/analysis.h"
#include "profiler/export/export.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/run_directory.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

struct ExportRequest {
  std::string run;
  std::string out;
  bool kineto = false, perfetto = false, tensorboard = false, xplane = false, memory = false;
  bool csv = false, json = false;
  bool no_split_graphs = false, cpu_as_device = false;

  bool wants_all() const {
    return !kineto && !perfetto && !tensorboard && !xplane && !memory && !csv && !json;
  }
};

// Beside the session, unless it was said; further sessions of a run directory have their own.
fs::path folder_of(const ExportRequest& request, const ProfiledRun& run) {
  if (!request.out.empty()) return request.out;
  fs::path folder = run.directory() / "trace";
  remove_link(folder);
  if (run.file.filename() == "session.prof") return folder;
  remove_link(folder / run.file.stem());
  return folder / run.file.stem();
}

// Each format gets its own folder: HolisticTraceAnalysis treats every .json as a trace. A link in
// its place is not followed; it is removed only from a run's own folder.
void write(const ExportRequest& request, const fs::path& folder, const std::string& name,
           std::string_view content) {
  if (request.out.empty())
    remove_link(folder);
  else if (fs::is_symlink(folder))
    fail<UsageError>("{}: is a link, which is not followed; remove it, or choose another --out",
                     folder.string());
  std::error_code error;
  fs::create_directories((folder / name).parent_path(), error);
  if (error)
    fail<DataError>("{}: cannot be created: {}; choose another folder with --out", folder.string(),
                    error.message());
  write_atomically(folder / name, content);
  fmt::print("{}\n", (folder / name).string());
}

void write_tables(const ExportRequest& request, const ProfiledRun& run, const fs::path& folder) {
  for (const profiler::Table& table : profiler::tables(run.session, analyse_in_job(run))) {
    if (request.csv || request.wants_all())
      write(request, folder, table.key + ".csv", profiler::to_csv(table));
    if (request.json || request.wants_all())
      write(request, folder, table.key + ".json", printed(profiler::to_json(table), 1) + "\n");
  }
}

// The lines of the run's metrics.jsonl; none where there is no such file, without a line that was
// cut off. DataError if it cannot be read.
std::vector<profiler::Json> metrics_of(const fs::path& run) {
  std::vector<profiler::Json> records;
  if (!fs::exists(run / "metrics.jsonl")) return records;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (profiler::Json record = parse_json<profiler::Json>(line); record.is_object())
      records.push_back(std::move(record));
  return records;
}

void write_scalars(const ExportRequest& request, const fs::path& folder, const ProfiledRun& run) {
  const std::string name = profiler::tensorboard_name(run.session);
  write(request, folder, name,
        profiler::tensorboard_events(run.session, metrics_of(run.directory())));
  if (!run.session.samples.empty())
    write(request, folder / "system", name, profiler::tensorboard_machine_events(run.session));
}

// An export of the same session replaces the one before; TensorBoard would show both.
int export_run(const ExportRequest& request) {
  const ProfiledRun run = open_profiled_run(request.run);
  const profiler::Session& session = run.session;
  const fs::path folder = folder_of(request, run);
  if (request.kineto || request.wants_all()) {
    const profiler::KinetoOptions options{.split_graphs = !request.no_split_graphs,
                                          .cpu_as_device = request.cpu_as_device};
    write(request, folder / export_folder::kineto, profiler::kineto_name(session),
          profiler::gzipped(profiler::kineto_json(session, options)));
  }
  if (request.perfetto || request.wants_all())
    write(request, folder / export_folder::perfetto, "trace.pftrace",
          profiler::perfetto_trace(session));
  if (request.tensorboard || request.wants_all())
    write_scalars(request, folder / export_folder::tensorboard, run);
  if (request.xplane || request.wants_all())
    write(request, folder / export_folder::xplane, profiler::xplane_name(session),
          profiler::xplane_space(session));
  if (request.memory || request.wants_all())
    write(request, folder / export_folder::memory, "snapshot.pickle",
          profiler::memory_snapshot(session));
  if (request.csv || request.json || request.wants_all())
    write_tables(request, run, folder / export_folder::tables);
  return done;
}

Run declare_export(Parser parser) {
  auto request = std::make_shared<ExportRequest>();
  parser.add({.name = "run",
              .variable = &request->run,
              .help = "run directory, or a session file of one",
              .type = "RUN",
              .required = true});
  parser.add({.name = "--kineto",
              .variable = &request->kineto,
              .help = "for HolisticTraceAnalysis, torch_tb_profiler and chrome://tracing"});
  parser.add({.name = "--perfetto",
              .variable = &request->perfetto,
              .help = "for ui.perfetto.dev, with all overlapping spans"});
  parser.add({.name = "--tensorboard",
              .variable = &request->tensorboard,
              .help = "scalars of every step and of the machine, for tensorboard --logdir"});
  parser.add({.name = "--xplane",
              .variable = &request->xplane,
              .help = "for xprof and TensorBoard's profile plugin"});
  parser.add({.name = "--memory",
              .variable = &request->memory,
              .help = "the memory plan of a step, for pytorch.org/memory_viz"});
  parser.add({.name = "--csv",
              .variable = &request->csv,
              .help = "the report's tables, one file each, in ns and bytes"});
  parser.add({.name = "--json",
              .variable = &request->json,
              .help = "the same tables as lists of objects"});
  parser.add({.name = "--out",
              .variable = &request->out,
              .help = "folder to write to; otherwise RUN/trace, or trace/NAME for NAME.prof",
              .type = "DIR"});
  parser.add(
      {.name = "--no-split-graphs",
       .variable = &request->no_split_graphs,
       .help = "Kineto: assign all kernels of a graph to its launch, as CUPTI reports them"});
  parser.add({.name = "--cpu-as-device",
              .variable = &request->cpu_as_device,
              .help = "Kineto, of a run on the CPU: calls as kernels of a device, because "
                      "HolisticTraceAnalysis analyses only these"});
  parser.footer(
      "Without a format option all formats are written. Prints the files' names.\n"
      "Example:\n  warpstep export runs/first --kineto");
  return [request] { return export_run(*request); };
}

const Command export_command("export", "write a run's profile in other programs' formats",
                             declare_export);

}  // namespace
}  // namespace warpstep::tools
