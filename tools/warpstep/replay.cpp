// warpstep replay: parses the raw CUPTI buffers of an earlier run again.
#include <fmt/format.h>

#include <memory>

#include "engine/core/record.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/device_trace.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

struct ReplayOptions {
  std::string raw, out;
};

int replay(const ReplayOptions& options) {
  profiler::Traced traced = profiler::replay_device_trace(options.raw);
  profiler::Session session;
  session.names = record::names();  // the parser interned its own
  session.activities = std::move(traced.activities);
  session.graph_nodes = std::move(traced.graph_nodes);
  session.clocks = std::move(traced.clocks);
  session.losses = traced.losses;
  session.notes = std::move(traced.notes);
  profiler::SessionWriter(options.out).write(session);
  fmt::print("{}: {} activities\n", options.out, session.activities.size());
  return done;
}

Run declare_replay(Parser parser) {
  auto options = std::make_shared<ReplayOptions>();
  parser.add({.name = "raw",
              .variable = &options->raw,
              .help = "file written by --profile-raw",
              .type = "RAW",
              .required = true});
  parser.add({.name = "out",
              .variable = &options->out,
              .help = "session file to write",
              .type = "OUT",
              .required = true});
  parser.footer("Example:\n  warpstep replay runs/first/cupti.raw replayed.prof");
  return [options] { return replay(*options); };
}

const Command replay_command("replay", "create a session from raw CUPTI buffers", declare_replay);

}  // namespace
}  // namespace warpstep::tools
