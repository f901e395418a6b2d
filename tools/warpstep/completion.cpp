// warpstep completion: completion for shells, and man pages, from the options as --help has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/version.h"
#include "models/zoo.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/command_list.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;
using CommandList = std::vector<ListedCommand>;

void each_command(const ListedCommand& command,
                  const std::function<void(const ListedCommand&)>& visit) {
  visit(command);
  for (const ListedCommand& sub : command.commands) each_command(sub, visit);
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// The words that an option's value may be; empty where a file or anything else is wanted.
std::vector<std::string> words_of(const ListedOption& option) {
  if (option.names.front() != "model") return option.choices();
  std::vector<std::string> names;
  for (const models::Model& model : models::zoo()) names.emplace_back(model.name);
  return names;
}

// "train", "data make"; empty of the program itself.
std::string path_of(const ListedCommand& command) {
  const std::size_t at = command.name.find(' ');
  return at == std::string::npos ? "" : command.name.substr(at + 1);
}

std::vector<std::string> names_of(const CommandList& commands) {
  std::vector<std::string> names;
  for (const ListedCommand& command : commands) names.push_back(command.own_name());
  return names;
}

// bash: a function with a branch per command. Without words of its own it leaves completion to the
// shell, which offers files.

std::string bash_branch(const ListedCommand& command) {
  std::vector<std::string> options;
  std::vector<std::string> words = names_of(command.commands);
  std::string values;
  for (const ListedOption& option : command.options) {
    const std::vector<std::string> choices = words_of(option);
    if (option.positional) {
      words.insert(words.end(), choices.begin(), choices.end());
      continue;
    }
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (!option.value.empty())
      values += fmt::format("        {}) words='{}' value=1 ;;\n", fmt::join(option.names, "|"),
                            fmt::join(choices, " "));
  }
  std::string text = fmt::format("    '{}')\n      words='{}' options='{}'\n", path_of(command),
                                 fmt::join(words, " "), fmt::join(options, " "));
  if (!values.empty()) text += "      case $previous in\n" + values + "      esac\n";
  return text + "      ;;\n";
}

std::string bash_script(const ListedCommand& program) {
  std::vector<std::string> paths;
  std::string branches;
  each_command(program, [&](const ListedCommand& command) {
    if (const std::string path = path_of(command); !path.empty()) paths.push_back("'" + path + "'");
    branches += bash_branch(command);
  });
  return fmt::format(
      R"(# bash completion of warpstep; load it with: source <(warpstep completion bash)
_warpstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command= words= options= value= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
      {}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case $command in
{}  esac
  [[ -z $value && $current == -* ]] && words=$options
  [[ -z $words ]] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _warpstep warpstep
)",
      fmt::join(paths, "|"), branches);
}

// zsh: _arguments for each command.

std::string zsh_quoted(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"})
    text = replaced(text, special, std::string("\\") + special);
  return replaced(text, "'", "'\\''");
}

std::string zsh_action(const ListedOption& option) {
  const std::vector<std::string> words = words_of(option);
  return words.empty() ? "_files" : fmt::format("({})", fmt::join(words, " "));
}

std::string zsh_arguments(const ListedCommand& command) {
  std::string text;
  int place = 0;
  for (const ListedOption& option : command.options) {
    if (option.positional) {
      text += fmt::format(" \\\n        '{}:{}:{}'", option.repeats ? "*" : std::to_string(++place),
                          option.names[0], zsh_action(option));
      continue;
    }
    for (const std::string& name : option.names)
      text += fmt::format(" \\\n        '*{}[{}]{}'", name, zsh_quoted(option.help),
                          option.value.empty() ? ""
                                               : fmt::format(":{}:{}", zsh_quoted(option.value),
                                                             zsh_action(option)));
  }
  return text;
}

std::string zsh_function(const ListedCommand& command) {
  const auto name = [](const ListedCommand& of) {
    return "_" + replaced(replaced(of.name, " ", "_"), "-", "_");
  };
  if (command.commands.empty())
    return fmt::format("{}() {{\n  _arguments{}\n}}\n", name(command), zsh_arguments(command));
  std::string list, calls;
  for (const ListedCommand& sub : command.commands) {
    list +=
        fmt::format("    '{}:{}'\n", sub.own_name(), replaced(zsh_quoted(sub.summary), "\\:", ":"));
    calls += fmt::format("    {}) {} ;;\n", sub.own_name(), name(sub));
  }
  return fmt::format(
      "{}() {{\n  local -a commands=(\n{}  )\n  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n    return\n  fi\n  shift words\n  ((CURRENT--))\n"
      "  case $words[1] in\n{}  esac\n}}\n",
      name(command), list, calls);
}

std::string zsh_script(const ListedCommand& program) {
  std::string text = "#compdef warpstep\n";
  each_command(program, [&](const ListedCommand& command) { text += zsh_function(command); });
  return text + "_warpstep \"$@\"\n";
}

// fish: a line per option, on condition that its command was given.

std::string fish_quoted(std::string text) {
  return "'" + replaced(replaced(std::move(text), "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_condition(const std::string& path, const CommandList& commands) {
  std::string text;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(' ', begin), path.size());
    text += fmt::format("{}__fish_seen_subcommand_from {}", text.empty() ? "" : "; and ",
                        path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (path.empty()) return "__fish_use_subcommand";
  if (!commands.empty())
    text +=
        fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(names_of(commands), " "));
  return text;
}

std::string fish_option(const ListedOption& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty()) {
    const std::vector<std::string> words = words_of(option);
    text +=
        words.empty() ? " -r" : " -x -a " + fish_quoted(fmt::format("{}", fmt::join(words, " ")));
  }
  return text + " -d " + fish_quoted(option.help);
}

std::string fish_script(const ListedCommand& program) {
  std::string text = "# fish completion of warpstep\n";
  each_command(program, [&](const ListedCommand& command) {
    const std::string begin =
        fmt::format("complete -c warpstep -n {}",
                    fish_quoted(fish_condition(path_of(command), command.commands)));
    for (const ListedCommand& sub : command.commands)
      text += fmt::format("{} -f -a {} -d {}\n", begin, sub.own_name(), fish_quoted(sub.summary));
    for (const ListedOption& option : command.options)
      if (!option.positional)
        text += begin + fish_option(option) + "\n";
      else if (const auto words = words_of(option); !words.empty())
        text +=
            fmt::format("{} -a {}\n", begin, fish_quoted(fmt::format("{}", fmt::join(words, " "))));
  });
  return text;
}

// Man pages: one per command, in the language of man(7).

std::string roff(std::string text) {
  text = replaced(replaced(std::move(text), "\\", "\\e"), "-", "\\-");
  text = replaced(std::move(text), "\n.", "\n\\&.");
  return text.starts_with('.') || text.starts_with('\'') ? "\\&" + text : text;
}

std::string page_name(const ListedCommand& command) {
  return replaced(command.name, " ", "-");
}

std::string man_options(const ListedCommand& command) {
  std::string text, group;
  for (const ListedOption& option : command.options) {
    const std::string heading = option.positional ? "Arguments" : option.group;
    if (heading != group) text += fmt::format(".SS {}\n", roff(heading));
    group = heading;
    text += fmt::format(
        ".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(option.names, ", "))),
        option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR", roff(option.help));
  }
  return text;
}

std::string man_page(const ListedCommand& command) {
  std::string synopsis = command.commands.empty() ? "" : " \\fICOMMAND\\fR";
  for (const ListedOption& option : command.options)
    if (option.positional)
      synopsis += fmt::format(" \\fI{}\\fR{}", roff(option.names[0]), option.repeats ? " ..." : "");
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"warpstep {}\" \"Warpstep\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR{} "
      "[\\fIOPTIONS\\fR]\n",
      page_name(command), version(), roff(page_name(command)), roff(command.summary),
      roff(command.name), synopsis);
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const ListedCommand& sub : command.commands)
    text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(sub)), roff(sub.summary));
  text += ".SH OPTIONS\n" + man_options(command);
  if (!command.footer.empty())
    text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.footer));
  return text;
}

// Where shells and man look for them below a prefix's share/.
void write_files(const ListedCommand& program, const fs::path& share) {
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((share / name).parent_path());
    write_atomically(share / name, text);
  };
  put("bash-completion/completions/warpstep", bash_script(program));
  put("zsh/site-functions/_warpstep", zsh_script(program));
  put("fish/vendor_completions.d/warpstep.fish", fish_script(program));
  each_command(program, [&](const ListedCommand& command) {
    put("man/man1/" + page_name(command) + ".1", man_page(command));
  });
}

struct CompletionRequest {
  std::string shell;
  std::string write;
};

int complete(const Parser& parser, const CompletionRequest& request) {
  const ListedCommand program = list_commands(parser);
  if (request.shell.empty() == request.write.empty())
    fail<UsageError>("name a shell (bash, zsh or fish), or a folder with --write");
  if (!request.write.empty()) write_files(program, request.write);
  if (request.shell == "bash") fmt::print("{}", bash_script(program));
  if (request.shell == "zsh") fmt::print("{}", zsh_script(program));
  if (request.shell == "fish") fmt::print("{}", fish_script(program));
  return done;
}

Run declare_completion(Parser parser) {
  auto request = std::make_shared<CompletionRequest>();
  parser.add({.name = "shell",
              .variable = &request->shell,
              .help = "print the completion of this shell",
              .check = one_of({"bash", "zsh", "fish"})});
  parser.add({.name = "--write",
              .variable = &request->write,
              .help = "write the completion of all shells and the man pages below this folder, a "
                      "prefix's share/",
              .type = "DIR"});
  parser.footer(
      "Examples:\n  source <(warpstep completion bash)\n"
      "  warpstep completion fish >~/.config/fish/completions/warpstep.fish\n"
      "  warpstep completion --write ~/.local/share");
  return [parser, request] { return complete(parser, *request); };
}

const Command completion_command("completion", "completion for bash, zsh and fish, and man pages",
                                 declare_completion);

}  // namespace
}  // namespace warpstep::tools
