// The frame that every subcommand of `warpstep` stands in. A subcommand is one file:
//
//   #include <CLI/CLI.hpp>
//   Run declare(CLI::App& app) {
//     auto options = std::make_shared<Options>();
//     app.add_option("--batch", options->batch, "samples a step")->capture_default_str();
//     app.footer("Example:\n  warpstep train cifar10cnn --batch 128");
//     return [options] { return train(*options); };
//   }
//   const Command command("train", "train a model", declare);
//
// Results go to stdout, messages to stderr. What a subcommand throws becomes one line on stderr.
// Each subcommand also takes --config FILE: options as TOML, where the command line wins.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;  // <CLI/CLI.hpp> takes seconds to compile: files that declare options include it
}

namespace warpstep::tools {

enum ExitCode : int { done = 0, failed = 1, usage = 2, interrupted = 130 };

// What a subcommand does once its options are parsed; returns an ExitCode.
using Run = std::function<int()>;
// Declares options, footer and positionals on the subcommand's parser.
using Declare = Run (*)(CLI::App& app);

struct Spec {
  std::string name;     // as typed
  std::string summary;  // one line for the list of subcommands, lower case, no full stop
  Declare declare;
};

// Registers a subcommand of the program; made as a static object in the subcommand's file.
class Command {
 public:
  Command(std::string name, std::string summary, Declare declare);
};

// For a subcommand that has its own subcommands (`warpstep data make`): declares them on `app` and
// returns a Run that runs the one that was given; exactly one must be.
Run declare_group(CLI::App& app, std::initializer_list<Spec> specs);

// The program: parses, runs the subcommand, reports errors. `order` lists the subcommands' names as
// help shows them; registered ones that it does not name follow by name. Returns the exit code.
int run_program(std::initializer_list<std::string> order, std::span<const char* const> arguments);

}  // namespace warpstep::tools
