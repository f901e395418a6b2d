#include "tools/warpstep/command.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <istream>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/core/version.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

std::vector<Spec>& registry() {
  static std::vector<Spec> specs;
  return specs;
}

// The innermost subcommand that was given, and its name with its parents' ("warpstep data make").
const CLI::App& innermost(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.back());
}

std::string full_name(const CLI::App& app) {
  const std::string& own = app.get_name();
  return app.get_parent() ? full_name(*app.get_parent()) + " " + own : own;
}

// Long names of the options, without dashes.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// What an argument that nobody took was meant to be; empty if all were taken.
std::string unexpected_argument(const CLI::App& app) {
  std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return {};
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && word != "--";
  });
  if (option != rest.end()) {
    const std::string written = option->substr(0, option->find('='));
    const std::string word =
        written.substr(std::min(written.find_first_not_of('-'), written.size()));
    return fmt::format("unknown option {}{}", written, suggestion(word, option_names(app), "--"));
  }
  const std::vector<std::string> subcommands = subcommand_names(app);
  if (!subcommands.empty())
    return fmt::format("unknown command {}{}", rest[0], suggestion(rest[0], subcommands));
  return fmt::format("unexpected argument {}", rest[0]);
}

// Reads TOML for the subcommand that was given: an unknown key is an error, not an extra.
class ConfigFile : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const CLI::App& command = innermost(app_);
    std::vector<std::string> known = option_names(command);
    for (const CLI::Option* option : command.get_options())
      if (option->get_positional()) known.push_back(option->get_single_name());
    // The parser takes time in the square of a line's length.
    constexpr std::streamsize most = 1 << 16;
    std::string text(most + 1, '\0');
    input.read(text.data(), most + 1);
    if (input.gcount() > most)
      fail<UsageError>("--config: the file has more than {} bytes; a file of options is small",
                       most);
    text.resize(static_cast<std::size_t>(input.gcount()));
    std::istringstream small(text);
    std::vector<CLI::ConfigItem> read = CLI::ConfigTOML::from_config(small);
    for (CLI::ConfigItem& item : read) {
      if (!item.parents.empty())
        fail<UsageError>("--config: the file has a section [{}]; write its keys at the top level",
                         item.parents[0]);
      if (std::find(known.begin(), known.end(), item.name) == known.end() ||
          item.name == "config" || item.name == "help")
        fail<UsageError>("--config: unknown key {}{}", item.name, suggestion(item.name, known));
      for (const CLI::App* app = &command; app->get_parent(); app = app->get_parent())
        item.parents.insert(item.parents.begin(), app->get_name());
    }
    return read;
  }

 private:
  const CLI::App& app_;
};

// A pipe would be waited for before its size is known.
std::string regular_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return "";
  return fmt::format(
      "{}: {}", path,
      std::filesystem::exists(path, error) ? "is not a file" : "there is no such file");
}

CLI::App& root_of(CLI::App& app) {
  return app.get_parent() ? root_of(*app.get_parent()) : app;
}

// Adds a subcommand; `run` is set when all of it is declared.
void add(CLI::App& parent, const Spec& spec, std::vector<std::pair<const CLI::App*, Run>>& runs) {
  CLI::App& app = *parent.add_subcommand(spec.name, spec.summary);
  Run run = spec.declare(app);
  if (subcommand_names(app).empty()) {
    // The parser reads config files for the root alone, so the file's name is handed to it there.
    auto* option = app.add_option_function<std::string>(
        "--config",
        [&app](const std::string& path) { root_of(app).get_config_ptr()->add_result(path); },
        "read options from a TOML file; the command line wins");
    option->trigger_on_parse()->configurable(false)->check(regular_file)->type_name("FILE");
  }
  runs.emplace_back(&app, std::move(run));
}

std::string help(const CLI::App& command) {
  return command.get_parent() ? command.help(full_name(*command.get_parent())) : command.help();
}

int report(const CLI::App& app, std::string_view message, ExitCode code) {
  const CLI::App& command = innermost(app);
  say("{}: {}\n", full_name(command), message);
  if (code == usage) say("Try '{} --help'.\n", full_name(command));
  return code;
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    const bool version_wanted = dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr;
    fmt::print("{}", version_wanted ? std::string(error.what()) + "\n" : help(command));
    return done;
  }
  // A mistyped option is often why another one is missing: it is reported first.
  const std::string unexpected = unexpected_argument(command);
  if (!unexpected.empty()) return report(app, unexpected, usage);
  if (!subcommand_names(command).empty()) {
    say("{}", help(command));
    return usage;
  }
  return report(app, error.what(), usage);
}

std::string readable(const std::filesystem::filesystem_error& error) {
  std::string paths = error.path1().string();
  if (!error.path2().empty()) paths += " -> " + error.path2().string();
  return fmt::format("{}: {}", paths, error.code().message());
}

// The readers of files name the file; this is for what is allocated elsewhere.
const char* out_of_memory(const CLI::App& app) {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const bool has_batch = innermost(app).get_option_no_throw("--batch") != nullptr;
  if (has_batch)
    return limited ? "out of memory: the address space is limited (ulimit -v); a smaller --batch "
                     "needs less"
                   : "out of memory; a smaller --batch needs less";
  return limited ? "out of memory: the address space is limited (ulimit -v)" : "out of memory";
}

// Runs `body` and turns what it throws into a message and an exit code.
int guarded(const CLI::App& app, const std::function<int()>& body) {
  try {
    return body();
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  } catch (const UsageError& error) {
    return report(app, error.what(), usage);
  } catch (const Error& error) {
    return report(app, error.what(), failed);
  } catch (const std::bad_alloc&) {
    return report(app, out_of_memory(app), failed);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(app, readable(error), failed);
  } catch (const std::system_error& error) {
    // A reader of stdout that went away (`| head`) has all it wanted.
    if (error.code() == std::errc::broken_pipe && std::ferror(stdout)) return done;
    if (std::ferror(stdout))
      return report(app, fmt::format("standard output: {}", error.code().message()), failed);
    if (error.code() == std::errc::resource_unavailable_try_again)
      return report(
          app,
          fmt::format("a thread cannot be started: {}; the limits are those of processes "
                      "(ulimit -u), of memory (ulimit -v) and of the container (pids.max)",
                      error.code().message()),
          failed);
    return report(app, error.what(), failed);
  } catch (const std::exception& error) {
    return report(app, fmt::format("internal error: {}", error.what()), failed);
  }
}

// Results that did not reach stdout are a failure, unless its reader went away.
int flushed(const CLI::App& app, int code) {
  errno = 0;
  if (std::fflush(stdout) != 0 && output::stdout_error == 0) output::stdout_error = errno;
  const int error = std::exchange(output::stdout_error, 0);
  if (code != done || error == 0 || error == EPIPE) return code;
  return report(app, fmt::format("standard output: {}", std::strerror(error)), failed);
}

}  // namespace

Command::Command(std::string name, std::string summary, Declare declare) {
  registry().push_back({std::move(name), std::move(summary), declare});
}

Run declare_group(CLI::App& app, std::initializer_list<Spec> specs) {
  std::vector<std::pair<const CLI::App*, Run>> runs;
  for (const Spec& spec : specs) add(app, spec, runs);
  app.require_subcommand(1);
  app.footer(
      fmt::format("'{} COMMAND --help' explains a command, with an example.", full_name(app)));
  return [runs = std::move(runs)] {
    for (const auto& [command, run] : runs)
      if (command->parsed()) return run();
    fail<UsageError>("no command given");
  };
}

int run_program(std::initializer_list<std::string> order,
                std::span<const char* const> arguments) try {
  std::signal(SIGPIPE, SIG_IGN);  // writing to a closed pipe is an error like any other
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file at its limit
  CLI::App app("Warpstep trains neural networks and explains every step.", "warpstep");
  return flushed(
      app, guarded(app, [&] {
        cpu_isa_limit();  // a misspelt one is said by every command
        app.set_version_flag("--version", fmt::format("warpstep {} ({})", version(), commit()));
        app.set_config("--config")->group("");
        app.allow_config_extras(CLI::config_extras_mode::error);
        app.config_formatter(std::make_shared<ConfigFile>(app));
        app.footer("'warpstep COMMAND --help' explains a command, with an example.");

        const auto place = [&order](const Spec& spec) {
          return std::pair(std::find(order.begin(), order.end(), spec.name), spec.name);
        };
        std::sort(registry().begin(), registry().end(),
                  [&](const Spec& a, const Spec& b) { return place(a) < place(b); });
        std::vector<std::pair<const CLI::App*, Run>> runs;
        for (const Spec& spec : registry()) add(app, spec, runs);
        app.require_subcommand(1);

        app.parse(static_cast<int>(arguments.size()), arguments.data());
        const auto given = std::find_if(runs.begin(), runs.end(),
                                        [](const auto& run) { return run.first->parsed(); });
        return given->second();
      }));
} catch (...) {  // of a message itself
  std::fputs("warpstep: out of memory\n", stderr);
  return failed;
}

}  // namespace warpstep::tools
