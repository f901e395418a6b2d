// warpstep replay: parses the raw CUPTI buffers of an earlier run again.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "engine/core/error.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/device_trace.h"
#include "profiler/sources/replayed_session.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

struct ReplayOptions {
  std::string raw, out;
};

int replay(const ReplayOptions& options) {
  if (std::error_code none; std::filesystem::equivalent(options.raw, options.out, none))
    fail<UsageError>("{}: is {}, the file that is read; write to another file", options.out,
                     options.raw);
  const profiler::Session session =
      profiler::replayed_session(profiler::replay_device_trace(options.raw));
  profiler::SessionWriter writer(options.out);
  writer.write(session);
  writer.close();
  profiler::read_session(options.out);  // throws unless readers accept it
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
