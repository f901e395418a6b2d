// The frame of every subcommand of `warpstep`. A subcommand is one file:
//
//   Run declare(Parser parser) {
//     auto options = std::make_shared<Options>();
//     parser.add({.name = "--batch", .variable = &options->batch, .help = "samples per step"});
//     parser.footer("Example:\n  warpstep train cifar10cnn --batch 128");
//     return [options] { return train(*options); };
//   }
//   const Command command("train", "train a model", declare);
//
// Results go to stdout, messages to stderr. An exception of a subcommand becomes one line on
// stderr. Each subcommand also accepts --config FILE: options as TOML, or a run's config.json,
// where the command line wins. Only command*.cpp include CLI11, which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace CLI {
class App;
}

namespace warpstep::tools {

enum ExitCode : int { done = 0, failed = 1, usage = 2, interrupted = 130 };

// A rule for the text of one value.
struct Check {
  std::function<std::string(const std::string&)> problem;  // returns what is wrong; empty: valid
  std::string range = {};    // for help, after the description: "1 to 16"
  std::string choices = {};  // for help, in place of the value's type: "cpu|cuda"
};
// "; did you mean --lr?" for a mistyped name, or one that other programs have: learning-rate.
std::string option_suggestion(std::string_view word, std::span<const std::string> names,
                              std::string_view prefix = "");
Check in_range(std::int64_t least, std::int64_t most);
Check number_in_range(double least, double most);
Check one_of(std::initializer_list<std::string_view> choices);
inline constexpr std::uint64_t most_usual = 1'000'000'000'000;  // leaves room for arithmetic
Check whole_number(std::uint64_t least = 0, std::uint64_t most = most_usual);
Check finite_number();
Check number_from_zero();   // finite
Check class_weight();       // is_class_weight()
Check number_above_zero();  // finite
Check number_up_to(double most, bool inclusive);
// Valid is every text that `parse` accepts; the message is that of its UsageError.
Check parsed_by(std::function<void(const std::string&)> parse);

// Where the value of an option is stored; a bool makes it a flag without a value.
using Variable = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                              std::vector<double>*, std::vector<std::string>*>;

struct Option {
  std::string name;  // "--batch", "-o,--output", "--best,!--no-best"; without dashes: positional
  Variable variable;
  std::string help;          // lower case, no full stop; the range and the default follow it
  Check check = {};          // of each value
  std::string type = {};     // of the value in help; else by the variable: N, X or TEXT
  std::string group = {};    // heading in help
  bool required = false;     // an error if it is missing
  int least = 0, most = 0;   // values of a list; most 0: any number
  bool by_comma = false;     // a list is one argument: 1,2.5
  bool repeats = false;      // a list has one argument each time that the option is given
  std::string zero = {};     // a word that means 0, such as auto
  std::string initial = {};  // the default in help, else the variable's value; -: none
};

// Declares the options of one subcommand and knows which were given. Copies refer to the same
// parser.
class Parser {
 public:
  Parser();                        // independent of the program
  explicit Parser(CLI::App& app);  // of a subcommand
  void add(const Option& option) const;
  void footer(const std::string& text) const;  // of the help
  // For an independent parser; throws UsageError.
  void parse(const std::vector<std::string>& arguments) const;

  bool has(std::string_view name) const;    // "--batch" or "model"
  bool given(std::string_view name) const;  // on the command line or in the --config file
  std::vector<std::string> given() const;   // their names, without --config
  // Why these values of an option are invalid; empty if they are valid.
  std::string problem(std::string_view name, const std::vector<std::string>& values) const;

  CLI::App& app() const { return *app_; }

 private:
  std::shared_ptr<CLI::App> app_;
};

// Two columns as in help, wrapped at 100 columns.
std::string help_row(const std::string& name, const std::string& description);

// "2.1.2"
std::string cli11_version();

// What a subcommand does once its options are parsed; returns an ExitCode.
using Run = std::function<int()>;
// Declares options, footer and positionals of the subcommand.
using Declare = Run (*)(Parser parser);

struct Spec {
  std::string name;     // as typed
  std::string summary;  // one line for the list of subcommands, lower case, no full stop
  Declare declare;
};

// Registers a subcommand of the program; a static object in the subcommand's file.
class Command {
 public:
  Command(std::string name, std::string summary, Declare declare);
};

// For a subcommand with subcommands (`warpstep data make`): declares them and returns a Run that
// runs the one given; exactly one is required.
Run declare_group(Parser parser, std::initializer_list<Spec> specs);

// The program: parses, runs the subcommand, reports errors. `order` lists the subcommands as help
// shows them; the others follow by name. Returns the exit code.
int run_program(std::initializer_list<std::string> order, std::span<const char* const> arguments);

}  // namespace warpstep::tools
