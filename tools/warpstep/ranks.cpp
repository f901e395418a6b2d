// warpstep ranks: compares the processes of one job on one clock.
#include "profiler/analysis/ranks.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/formats/tar.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "profiler/export/export.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

struct RanksOptions {
  std::vector<std::string> runs;
  std::string perfetto;
  bool json = false;
};

void append_member(std::string& archive, const std::string& name, std::string_view content) {
  const auto header = data::tar_header(name, content.size());
  archive.append(reinterpret_cast<const char*>(header.data()), header.size());
  archive.append(content);
  const std::size_t over = archive.size() % data::tar_block_bytes;
  if (over != 0) archive.append(data::tar_block_bytes - over, '\0');
}

// One trace per rank, all on rank 0's clock, after the manifest by which Perfetto (58 and later)
// merges several traces: https://perfetto.dev/docs/reference/perfetto-manifest.
std::string perfetto_archive(std::vector<profiler::Session>& sessions,
                             const profiler::RanksView& view) {
  Json files = Json::array();
  std::vector<std::string> traces;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const profiler::RankRow& rank = view.ranks[i];
    if (i > 0) profiler::move_to_clock(sessions[i], rank.clock, sessions.front());
    files.push_back({{"path", fmt::format("rank-{}.pftrace", rank.rank)},
                     {"machine", {{"name", fmt::format("rank {} on {}", rank.rank, rank.host)}}}});
    traces.push_back(profiler::perfetto_trace(sessions[i]));
  }
  const Json manifest{{"perfetto_manifest", {{"version", 1}, {"files", files}}}};
  std::string archive;
  append_member(archive, "perfetto_manifest.json", printed(manifest, 1));
  for (std::size_t i = 0; i < traces.size(); ++i)
    append_member(archive, files[i]["path"].get<std::string>(), traces[i]);
  archive.append(2 * data::tar_block_bytes, '\0');
  return archive;
}

int compare_ranks(const RanksOptions& options) {
  std::vector<profiler::Session> sessions;
  const auto open = [&](const std::string& name) {
    ProfiledRun run = open_profiled_run(name);
    check_output(options.perfetto, run);
    sessions.push_back(std::move(run.session));
  };
  for (const std::string& run : options.runs) open(run);
  // Of a job's run alone also those of its other ranks.
  if (sessions.size() == 1)
    for (int rank = 1, ranks = ranks_of(sessions.front().stamp); rank < ranks; ++rank)
      open(directory_of(options.runs.front(), {.size = ranks, .rank = rank}));
  profiler::sort_by_rank(sessions);
  const profiler::RanksView view = profiler::rank_view(sessions);
  if (options.json)
    fmt::print("{}\n", printed(Json{{"verdict", view.verdict},
                                    {"ranks", to_json(ranks_table(view))},
                                    {"exchanges", to_json(exchanges_table(view))},
                                    {"stragglers", to_json(straggles_table(view))}},
                               2));
  else
    fmt::print("{}", text_of_ranks(view));
  if (!options.perfetto.empty()) {
    write_atomically(options.perfetto, perfetto_archive(sessions, view));
    say("wrote {}\n", options.perfetto);
  }
  return done;
}

Run declare_ranks(Parser parser) {
  auto options = std::make_shared<RanksOptions>();
  parser.add({.name = "runs",
              .variable = &options->runs,
              .help =
                  "run directories with a session.prof, or .prof files: one per rank; or that of a "
                  "job, which has those of its ranks in RUN/ranks",
              .type = "RUN",
              .required = true});
  parser.add({.name = "--perfetto",
              .variable = &options->perfetto,
              .help = "write an archive with all ranks on one time line, for ui.perfetto.dev",
              .type = "FILE.tar"});
  parser.add({.name = "--json",
              .variable = &options->json,
              .help = "print the tables as JSON, in base units"});
  parser.footer(
      "Ranks are those of train --profile-rank, or the order of the runs.\n"
      "Examples:\n"
      "  warpstep ranks runs/eight\n"
      "  warpstep ranks runs/rank0 runs/rank1 --perfetto job.tar");
  return [options] { return compare_ranks(*options); };
}

const Command ranks_command("ranks", "compare the ranks of one job and find the straggler",
                            declare_ranks);

}  // namespace
}  // namespace warpstep::tools
