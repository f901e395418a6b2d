// warpstep check-trace: check any Kineto trace for problems in viewers.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "profiler/export/export.h"
#include "profiler/export/trace_file.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

std::vector<std::string> findings_of(const std::filesystem::path& path) {
  const std::string text = profiler::read_trace_text(path);
  try {
    return profiler::check_kineto(text);
  } catch (const DataError& error) {
    fail<DataError>("{}: {}", path.string(), error.what());
  }
}

int check(const std::filesystem::path& path) {
  const std::vector<std::string> findings = findings_of(path);
  for (const std::string& finding : findings) fmt::print("{}\n", printable(finding));
  if (!findings.empty()) return failed;
  fmt::print("{}: no problems found\n", path.string());
  return done;
}

Run declare_check_trace(Parser parser) {
  auto path = std::make_shared<std::string>();
  parser.add({.name = "file",
              .variable = path.get(),
              .help = "trace in Kineto's format, .json or .json.gz",
              .type = "FILE",
              .required = true});
  parser.footer(
      "Prints one line per problem and then exits with 1.\n"
      "Example:\n  warpstep check-trace runs/first/trace/kineto/*.pt.trace.json.gz");
  return [path] { return check(*path); };
}

const Command check_trace_command("check-trace", "check a Kineto trace for problems in viewers",
                                  declare_check_trace);

}  // namespace
}  // namespace warpstep::tools
