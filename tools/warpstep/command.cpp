#include "tools/warpstep/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/core/caught.h"
#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/core/version.h"
#include "engine/graph/layers.h"
#include "tools/warpstep/command_config.h"
#include "tools/warpstep/command_errors.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

// Checks. CLI11's own accept "-1" as 2^64 - 1 and "nan" as a number.

namespace {

bool read_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0;
}

// The parser reads 010 as 8: refuse it.
bool begins_with_zero(const std::string& text) {
  return text.size() > 1 && text[0] == '0';
}

// `bounds` follows the word number: " from 0 on".
Check number_within(const std::string& bounds, const std::string& range,
                    const std::function<bool(double)>& is_within) {
  constexpr double most = std::numeric_limits<float>::max();
  return {[=](const std::string& text) {
            double value = 0;
            const bool is_number = read_number(text, value);
            if (is_number && std::isfinite(value) && is_within(value))
              return std::abs(value) <= most
                         ? std::string()
                         : fmt::format("'{}' is too large: the maximum is {:.2g}", text, most);
            return fmt::format("'{}' is not a number{}", text, bounds);
          },
          range};
}

// The text of a number that is whole, though not written as one: 1e2, 3.0.
bool is_whole_otherwise(const std::string& text) {
  double real = 0;
  return read_number(text, real) && real != 0 && real == std::floor(real) &&
         text.find_first_of(".eE") != std::string::npos;
}

template <class Number>
Check whole_within(Number least, Number most, const std::string& range) {
  return {[least, most](const std::string& text) {
            Number value = 0;
            const char* end = text.data() + text.size();
            const auto [at, error] = std::from_chars(text.data(), end, value);
            const bool whole = error == std::errc() && at == end && !begins_with_zero(text);
            if (whole && value >= least && value <= most) return std::string();
            return fmt::format("'{}' is not {}whole number from {} to {}", text,
                               is_whole_otherwise(text) ? "written as a " : "a ", least, most);
          },
          range};
}

}  // namespace

Check in_range(std::int64_t least, std::int64_t most) {
  return whole_within(least, most, fmt::format("{} to {}", least, most));
}

Check number_in_range(double least, double most) {
  return number_within(fmt::format(" from {} to {}", least, most),
                       fmt::format("{} to {}", least, most),
                       [=](double value) { return value >= least && value <= most; });
}

Check one_of(std::initializer_list<std::string_view> choices) {
  const std::vector<std::string> all(choices.begin(), choices.end());
  return {[all](const std::string& text) {
            if (std::find(all.begin(), all.end(), text) != all.end()) return std::string();
            std::string lower(text);
            std::ranges::transform(lower, lower.begin(),
                                   [](unsigned char c) { return std::tolower(c); });
            return fmt::format("'{}' is not one of {}{}", text, fmt::join(all, ", "),
                               suggestion(lower, all));
          },
          "", fmt::format("{}", fmt::join(all, "|"))};
}

Check whole_number(std::uint64_t least, std::uint64_t most) {
  return whole_within(least, most,
                      most == most_usual   ? (least > 0 ? fmt::format("at least {}", least) : "")
                      : most == UINT64_MAX ? ""
                                           : fmt::format("{} to {}", least, most));
}

Check finite_number() {
  return number_within("", "", [](double) { return true; });
}

Check number_from_zero() {
  return number_within(" of at least 0", "at least 0", [](double value) { return value >= 0; });
}

Check class_weight() {
  return number_within(" that is 0 or from 1e-30 to 1e30", "0 or 1e-30 to 1e30", is_class_weight);
}

Check number_above_zero() {
  return number_within(" above 0", "above 0", [](double value) { return value > 0; });
}

Check number_up_to(double most, bool inclusive) {
  return number_within(
      fmt::format(" from 0 {} {}", inclusive ? "to" : "to below", most),
      fmt::format("0 to {}{}", inclusive ? "" : "below ", most),
      [=](double value) { return value >= 0 && (value < most || (inclusive && value == most)); });
}

Check parsed_by(std::function<void(const std::string&)> parse) {
  return {[parse = std::move(parse)](const std::string& text) {
    try {
      parse(text);
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  }};
}

// Help in two columns.

namespace {

constexpr std::size_t help_columns = 100, name_columns = 30;

// The type that help shows for a value of this variable.
const char* type_of(const Variable& variable) {
  struct Types {
    const char* operator()(const bool*) const { return ""; }
    const char* operator()(const int*) const { return "N"; }
    const char* operator()(const std::int64_t*) const { return "N"; }
    const char* operator()(const std::uint64_t*) const { return "N"; }
    const char* operator()(const double*) const { return "X"; }
    const char* operator()(const std::string*) const { return "TEXT"; }
    const char* operator()(const std::vector<double>*) const { return "X"; }
    const char* operator()(const std::vector<std::string>*) const { return "TEXT"; }
  };
  return std::visit(Types(), variable);
}

// The value that help shows as default; a negative number means that there is none.
std::string initial_text(const Option& option) {
  if (!option.initial.empty()) return option.initial == "-" ? "" : option.initial;
  if (const auto* text = std::get_if<std::string*>(&option.variable)) return **text;
  if (const auto* list = std::get_if<std::vector<double>*>(&option.variable))
    return fmt::format("{}", fmt::join(**list, " "));
  if (const auto* list = std::get_if<std::vector<std::string>*>(&option.variable))
    return fmt::format("{}", fmt::join(**list, " "));
  if (const auto* number = std::get_if<double*>(&option.variable))
    return **number < 0 ? "" : fmt::format("{}", **number);
  if (const auto* number = std::get_if<int*>(&option.variable)) return fmt::format("{}", **number);
  if (const auto* number = std::get_if<std::int64_t*>(&option.variable))
    return fmt::format("{}", **number);
  if (const auto* number = std::get_if<std::uint64_t*>(&option.variable))
    return fmt::format("{}", **number);
  return {};  // a flag
}

// "images per step (1 to 1048576; default 128)"
std::string description_of(const Option& option) {
  std::vector<std::string> facts;
  if (!option.check.range.empty()) facts.push_back(option.check.range);
  if (const std::string initial = initial_text(option); !initial.empty() && !option.required)
    facts.push_back("default " + initial);
  return facts.empty() ? option.help : fmt::format("{} ({})", option.help, fmt::join(facts, "; "));
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    return help_row(make_option_name(option, positional) + make_option_opts(option),
                    make_option_desc(option));
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional) return option->get_name(true, false);
    std::string text;
    for (const std::string& name : option->get_snames()) text += "-" + name + ", ";
    for (const std::string& name : option->get_lnames()) text += "--" + name + ", ";
    return text.substr(0, text.size() - 2);
  }
};

}  // namespace

std::string help_row(const std::string& name, const std::string& description) {
  std::string text = "  " + name, line;
  const auto flush = [&] {
    const std::size_t last = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (text.size() - last >= name_columns) text += "\n";
    const std::size_t begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    text += std::string(name_columns - (text.size() - begin), ' ') + line + "\n";
    line.clear();
  };
  std::istringstream words(description);
  for (std::string word; words >> word;) {
    if (!line.empty() && name_columns + line.size() + 1 + word.size() > help_columns) flush();
    line += (line.empty() ? "" : " ") + word;
  }
  if (line.empty()) return text + "\n";
  flush();
  return text;
}

// The parser.

namespace {

constexpr const char* other_group = "Options";

const CLI::Option* find_option(const CLI::App& app, std::string_view name) {
  return app.get_option_no_throw(std::string(name));
}

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_single_name()
                                     : "--" + option.get_lnames().front();
}

template <class T>
CLI::Option* add_typed(CLI::App& app, const Option& option, T* variable) {
  return app.add_option(option.name, *variable);
}

CLI::Option* add_typed(CLI::App& app, const Option& option, bool* variable) {
  return app.add_flag(option.name, *variable);
}

// Empty, it would be taken for an option that is not given.
bool names_a_place(const Option& option) {
  return option.type.starts_with("FILE") || option.type == "DIR" || option.type == "RUN";
}

std::string empty_problem(const std::string& text) {
  return text.empty() ? "is empty; is a variable unset?" : "";
}

}  // namespace

Parser::Parser() : app_(std::make_shared<CLI::App>()) {}

Parser::Parser(CLI::App& app) : app_(std::shared_ptr<CLI::App>(), &app) {}

void Parser::add(const Option& option) const {
  CLI::Option& added = *std::visit(
      [&](auto* variable) { return add_typed(*app_, option, variable); }, option.variable);
  const bool is_flag = std::holds_alternative<bool*>(option.variable);
  added.description(description_of(option))
      ->required(option.required)
      ->group(option.group.empty() ? other_group : option.group);
  if (is_flag) added.check(CLI::Validator(flag_problem, ""));
  if (is_flag) return;
  added.type_name(!option.type.empty()            ? option.type
                  : !option.check.choices.empty() ? option.check.choices
                                                  : type_of(option.variable));
  if (option.most > 0) added.expected(option.least, option.most);
  if (option.by_comma) added.delimiter(',');
  if (option.by_comma || option.repeats) added.allow_extra_args(false);
  if (std::holds_alternative<std::vector<double>*>(option.variable))
    added.delimiter(',');  // "0.5 0.5 0.5", as help shows it, or "0.5,0.5,0.5"
  if (names_a_place(option)) added.check(CLI::Validator(empty_problem, ""));
  if (option.check.problem) added.check(CLI::Validator(option.check.problem, ""));
  if (!option.zero.empty())
    added.transform(CLI::Validator(
        [zero = option.zero](std::string& text) {
          if (text == zero) text = "0";
          return std::string();
        },
        ""));
}

void Parser::footer(const std::string& text) const {
  app_->footer(text);
}

void Parser::parse(const std::vector<std::string>& arguments) const try {
  app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
} catch (const CLI::ParseError& error) {
  fail<UsageError>("{}", readable(*app_, error));
}

bool Parser::has(std::string_view name) const {
  return find_option(*app_, name) != nullptr;
}

bool Parser::given(std::string_view name) const {
  const CLI::Option* option = find_option(*app_, name);
  return option && option->count() > 0;
}

std::vector<std::string> Parser::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0 && name_of(*option) != "--config") names.push_back(name_of(*option));
  return names;
}

std::string Parser::problem(std::string_view name, const std::vector<std::string>& values) const
    try {
  CLI::Option& option = *app_->get_option(std::string(name));
  option.clear();
  for (const std::string& value : values) option.add_result(value);
  option.run_callback();
  return {};
} catch (const CLI::ParseError& error) {
  return readable(*app_, error);
}

namespace {

std::vector<Spec>& registry() {
  static std::vector<Spec> specs;
  return specs;
}

// With its parents' names: "warpstep data make".
std::string full_name(const CLI::App& app) {
  const std::string& own = app.get_name();
  return app.get_parent() ? full_name(*app.get_parent()) + " " + own : own;
}

// A pipe would block before its size is known.
std::string regular_file(const std::string& path) {
  if (path.empty()) return empty_problem(path);
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
  Run run = spec.declare(Parser(app));
  if (subcommand_names(app).empty()) {
    // CLI11 reads config files only for the root, so the root gets the file's name.
    auto* option = app.add_option_function<std::string>(
        "--config",
        [&app](const std::string& path) {
          CLI::Option& config = *root_of(app).get_config_ptr();
          if (!config.empty())
            fail<UsageError>("--config is given twice ({} and {}); give one file",
                             config.results().back(), path);
          config.add_result(path);
        },
        "read options from a TOML file, or from a run's config.json; the command line takes "
        "precedence");
    option->trigger_on_parse()->configurable(false)->check(regular_file)->type_name("FILE");
  }
  app.set_help_flag("-h,--help", "print this help and exit");  // again: at the end of its group
  runs.emplace_back(&app, std::move(run));
}

std::string help(const CLI::App& command) {
  std::string text =
      command.get_parent() ? command.help(full_name(*command.get_parent())) : command.help();
  // CLI11 leaves two empty lines between groups.
  for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

int report(const CLI::App& app, std::string_view message, ExitCode code) {
  const CLI::App& command = innermost(app);
  say("{}: {}\n", full_name(command), printable_lines(message));
  if (code == usage) say("Try '{} --help'.\n", full_name(command));
  say("{}", std::exchange(output::below_error, {}));
  return code;
}

const CLI::Option* missing_positional(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_required() && option->get_positional() && option->count() == 0) return option;
  return nullptr;
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    const bool version_wanted = dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr;
    fmt::print("{}", version_wanted ? std::string(error.what()) + "\n" : help(command));
    return done;
  }
  // Values are checked before the help flag is looked at.
  if (const CLI::Option* wanted = command.get_help_ptr(); wanted && wanted->count() > 0) {
    fmt::print("{}", help(command));
    return done;
  }
  // A mistyped option is often the reason that another one is missing: report it first.
  const std::string unexpected = unexpected_argument(command);
  if (!unexpected.empty()) return report(app, unexpected, usage);
  if (!subcommand_names(command).empty()) {
    say("{}", help(command));
    return usage;
  }
  if (const CLI::Option* missing = missing_positional(command))
    return report(
        app, fmt::format("{} is missing: {}", missing->get_name(true), missing->get_description()),
        usage);
  return report(app, readable(command, error), usage);
}

std::string readable(const std::filesystem::filesystem_error& error) {
  std::string paths = error.path1().string();
  if (!error.path2().empty()) paths += " -> " + error.path2().string();
  const bool has_hint = error.code() == std::errc::too_many_files_open;
  return fmt::format("{}: {}{}", paths, error.code().message(),
                     has_hint ? " (allow more with `ulimit -n`)" : "");
}

// For all allocations but those of file readers, which name the file.
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

// Runs `body` and turns an exception into a message and an exit code.
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
    // A reader of stdout that went away (`| head`) is no error.
    if (error.code() == std::errc::broken_pipe && std::ferror(stdout)) return done;
    if (std::ferror(stdout))
      return report(app, fmt::format("standard output: {}", error.code().message()), failed);
    if (error.code() == std::errc::resource_unavailable_try_again)
      return report(
          app,
          fmt::format("cannot start a thread: {}; check the limits on processes (ulimit -u), "
                      "memory (ulimit -v) and the container (pids.max)",
                      error.code().message()),
          failed);
    return report(app, error.what(), failed);
  } catch (...) {  // of a plugin perhaps no std::exception
    return report(app, fmt::format("internal error: {}", caught_text()), failed);
  }
}

// What does not is reported as without help.
bool name_commands(const CLI::App& app, std::span<const char* const> words) {
  if (words.empty() || subcommand_names(app).empty()) return true;
  const auto named =
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == words[0]; });
  return named.empty() ? words[0][0] == '-' : name_commands(*named[0], words.subspan(1));
}

// It is a failure if stdout could not be written, unless its reader went away.
int flushed(const CLI::App& app, int code) {
  flush_results();
  const int error = std::exchange(output::stdout_error, 0);
  if (code != done || error == 0 || error == EPIPE) return code;
  return report(app, fmt::format("standard output: {}", std::strerror(error)), failed);
}

}  // namespace

std::string cli11_version() {
  return CLI11_VERSION;
}

Command::Command(std::string name, std::string summary, Declare declare) {
  registry().push_back({std::move(name), std::move(summary), declare});
}

Run declare_group(Parser parser, std::initializer_list<Spec> specs) {
  CLI::App& app = parser.app();
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
        cpu_isa_limit();  // every command reports a misspelt one
        app.set_version_flag("--version", fmt::format("warpstep {} ({})", version(), commit()));
        app.formatter(std::make_shared<HelpFormatter>());
        app.set_config("--config")->group("");
        app.allow_config_extras(CLI::config_extras_mode::error);
        app.config_formatter(config_reader(app));
        app.footer("'warpstep COMMAND --help' explains a command, with an example.");

        const auto place = [&order](const Spec& spec) {
          return std::pair(std::find(order.begin(), order.end(), spec.name), spec.name);
        };
        std::sort(registry().begin(), registry().end(),
                  [&](const Spec& a, const Spec& b) { return place(a) < place(b); });
        std::vector<std::pair<const CLI::App*, Run>> runs;
        for (const Spec& spec : registry()) add(app, spec, runs);
        app.require_subcommand(1);

        // `warpstep help train` is `warpstep train --help`.
        std::vector<const char*> words(arguments.begin(), arguments.end());
        if (words.size() > 1 && words[1] == std::string_view("help")) {
          words.erase(words.begin() + 1);
          if (name_commands(app, std::span(words).subspan(1))) words.push_back("--help");
        }
        app.parse(static_cast<int>(words.size()), words.data());
        const auto given = std::find_if(runs.begin(), runs.end(),
                                        [](const auto& run) { return run.first->parsed(); });
        return given->second();
      }));
} catch (...) {  // from a message itself
  std::fputs("warpstep: out of memory\n", stderr);
  return failed;
}

}  // namespace warpstep::tools
