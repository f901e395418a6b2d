// warpstep profile PID: asks a running job to record its next steps.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "profiler/recorder/trigger.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

struct ProfileOptions {
  pid_t job = 0;
  profiler::TriggerRequest request;
  std::string last;
  bool list = false;
  bool json = false;
};

// The arguments with blanks between; empty for a job that has just ended.
std::string command_line(pid_t job) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", job), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

int list(const ProfileOptions& options) {
  Json jobs = Json::array();
  for (const pid_t job : profiler::listening_jobs())
    jobs.push_back({{"pid", job}, {"command", command_line(job)}});
  if (options.json) {
    fmt::print("{}\n", printed(jobs, 2));
    return done;
  }
  for (const Json& job : jobs)
    fmt::print("{:<8} {}\n", job.at("pid").get<pid_t>(),
               printable(job.at("command").get<std::string>()));
  if (jobs.empty()) say("none of your running jobs can be profiled\n");
  return done;
}

int ask(const ProfileOptions& options) {
  const std::string answer = profiler::trigger(options.job, options.request);
  const bool accepted = profiler::is_accepted(answer);
  if (options.json)
    fmt::print("{}\n",
               printed(Json{{"pid", options.job}, {"answer", answer}, {"accepted", accepted}}, 2));
  else
    fmt::print("{}\n", printable_lines(answer));
  return accepted ? done : failed;  // it is busy, or cannot write
}

// "10s", "1.5s" or "500ms".
std::uint64_t milliseconds_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double ms = unit == "ms" ? number : number * 1000;
  if (error != std::errc() || (unit != "s" && unit != "ms") || !(ms >= 1) || ms > 3'600'000)
    fail<UsageError>("--last {}: must be a time such as 10s or 500ms, at most 3600s", text);
  return static_cast<std::uint64_t>(ms);
}

// As whole_number(), but a run, of which the reader wants to see what was recorded, is named as
// one.
Check pid() {
  Check check = whole_number(1, 4'194'304);
  check.problem = [is_number = check.problem](const std::string& text) -> std::string {
    std::string problem = is_number(text);
    std::error_code none;
    if (problem.empty() || (text.find('/') == text.npos && !std::filesystem::exists(text, none)))
      return problem;
    return fmt::format(
        "'{}' is a path, and this command asks a running job, by its PID; to see what a run "
        "recorded: warpstep report {}",
        text, shell_word(text));
  };
  return check;
}

Run declare_profile(Parser parser) {
  auto options = std::make_shared<ProfileOptions>();
  parser.add({.name = "pid",
              .variable = &options->job,
              .help = "PID of a process that trains",
              .check = pid(),
              .type = "PID",
              .initial = "-"});
  parser.add({.name = "--steps",
              .variable = &options->request.steps,
              .help = "steps to record, beginning a few steps from now"});
  parser.add({.name = "--last",
              .variable = &options->last,
              .help = "instead of coming steps: keep what was recorded in this time, as far back "
                      "as the job still has it, for example 10s or 500ms"});
  parser.add({.name = "--deep",
              .variable = &options->request.deep,
              .help = "also record the work of the device"});
  parser.add({.name = "--list",
              .variable = &options->list,
              .help = "list the running jobs that can be profiled"});
  parser.add({.name = "--json", .variable = &options->json, .help = "print JSON"});
  parser.footer(
      "Examples:\n  warpstep profile --list\n  warpstep profile 4242 --steps 16 --deep\n"
      "  warpstep profile 4242 --last 10s");
  return [parser, options]() -> int {
    if (options->list) {
      if (options->job != 0) fail<UsageError>("a PID or --list, not both");
      return list(*options);
    }
    if (options->job == 0) fail<UsageError>("which job? Give its PID; --list prints them");
    if (!options->last.empty()) options->request.last_ms = milliseconds_of(options->last);
    if (!options->last.empty() && parser.given("--steps"))
      say("note: --steps has no effect with --last\n");
    return ask(*options);
  };
}

const Command profile_command("profile", "record the next or the last steps of a running job",
                              declare_profile);

}  // namespace
}  // namespace warpstep::tools
