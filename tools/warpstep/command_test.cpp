#include "tools/warpstep/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "engine/core/error.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

using testing::HasSubstr;

struct Options {
  std::string model, colour = "red";
  int batch = 128, coats = 1;
  std::uint64_t layers = 0;
  double price = 0;
  std::vector<double> tint{0, 0};
  std::vector<std::string> skip, settings;
  bool quiet = false;
};

// `paint MODEL --data X` prints what it was given.
Run declare_paint(Parser parser) {
  auto options = std::make_shared<Options>();
  parser.add(
      {.name = "model", .variable = &options->model, .help = "what to paint", .required = true});
  parser.add({.name = "--batch,-b", .variable = &options->batch, .help = "samples per step"});
  parser.add({.name = "--quiet", .variable = &options->quiet, .help = "print less"});
  parser.add({.name = "--colour",
              .variable = &options->colour,
              .help = "of the walls",
              .check = one_of({"red", "green"})});
  parser.add({.name = "--coats",
              .variable = &options->coats,
              .help = "of paint",
              .check = in_range(1, 9)});
  parser.add(
      {.name = "--layers", .variable = &options->layers, .help = "below", .check = whole_number()});
  parser.add({.name = "--price",
              .variable = &options->price,
              .help = "of it",
              .check = number_from_zero()});
  parser.add({.name = "--tint",
              .variable = &options->tint,
              .help = "of it",
              .check = number_in_range(0, 1),
              .least = 2,
              .most = 2});
  parser.add({.name = "--skip", .variable = &options->skip, .help = "a part", .repeats = true});
  parser.add({.name = "--setting",
              .variable = &options->settings,
              .help = "of it",
              .type = "NAME=VALUE",
              .repeats = true});
  parser.footer("Example:\n  warpstep paint house");
  return [options] {
    fmt::print("{} {} {}\n", options->model, options->batch, options->quiet);
    for (const std::string& part : options->skip) fmt::print("without {}\n", part);
    return done;
  };
}
const Command paint("paint", "paint a thing", declare_paint);

// `fault KIND` ends in the way that KIND names.
Run declare_fault(Parser parser) {
  auto kind = std::make_shared<std::string>();
  parser.add({.name = "kind", .variable = kind.get(), .help = "how to fail", .required = true});
  return [kind]() -> int {
    if (*kind == "data") fail<DataError>("a.png: 7 bytes missing");
    if (*kind == "controls") fail<DataError>("a\x1b]0;b\x07.png:\n  bad");
    if (*kind == "usage") fail<UsageError>("--out: is a file");
    if (*kind == "memory") throw std::bad_alloc();
    if (*kind == "other") throw std::out_of_range("vector::at");
    if (*kind == "number") throw 42;  // as a plugin may
    if (*kind == "flush") {
      print_result("a text");
      flush_results();
      return done;
    }
    if (*kind == "path")
      throw std::filesystem::filesystem_error("rename", "from", "to",
                                              std::make_error_code(std::errc::permission_denied));
    if (*kind == "files")
      throw std::filesystem::filesystem_error("open", "run",
                                              std::make_error_code(std::errc::too_many_files_open));
    return interrupted;
  };
}
const Command fault("fault", "fail", declare_fault);

const Command box("box", "boxes", [](Parser parser) {
  const auto declare = [](Parser inner) -> Run {
    auto size = std::make_shared<int>(1);
    inner.add({.name = "--size", .variable = size.get(), .help = "in metres"});
    return [size] {
      fmt::print("size {}\n", *size);
      return done;
    };
  };
  return declare_group(parser, {{"open", "open a box", declare}, {"close", "close it", declare}});
});

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "warpstep");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_program({"fault", "paint"}, arguments);
  const std::string out = testing::internal::GetCapturedStdout();
  return {code, out, testing::internal::GetCapturedStderr()};
}

std::string config_file(const std::string& text) {
  std::string path = testing::TempDir() + "config-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << text;
  return path;
}

TEST(Program, RunsASubcommand) {
  const Outcome outcome = run({"paint", "house", "--batch", "3"});
  EXPECT_EQ(outcome.code, done);
  EXPECT_EQ(outcome.out, "house 3 false\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Program, ShowsErrorsWithoutControlCharacters) {
  EXPECT_EQ(run({"fault", "controls"}).err, "warpstep fault: a?]0;b?.png:\n  bad\n");
}

TEST(Program, RefusesAConfigFileThatIsNone) {
  const std::string path = config_file(std::string(70'000, 'a'));
  const Outcome outcome = run({"paint", "house", "--config", path.c_str()});
  EXPECT_EQ(outcome.code, usage);
  EXPECT_THAT(outcome.err, HasSubstr(path + ": has more than 65536 bytes"));
}

TEST(Program, RunsASubcommandOfASubcommand) {
  EXPECT_EQ(run({"box", "close", "--size", "4"}).out, "size 4\n");
}

TEST(Program, ListsSubcommandsInTheGivenOrder) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.code, done);
  const std::size_t fault_at = outcome.out.find("\n  fault ");
  const std::size_t paint_at = outcome.out.find("\n  paint ");
  const std::size_t box_at = outcome.out.find("\n  box ");
  EXPECT_LT(fault_at, paint_at);
  EXPECT_LT(paint_at, box_at);
  EXPECT_NE(box_at, std::string::npos);
}

TEST(Program, HelpOfASubcommandNamesItInFullAndShowsAnExample) {
  const Outcome outcome = run({"paint", "--help"});
  EXPECT_EQ(outcome.code, done);
  EXPECT_THAT(outcome.out, HasSubstr("Usage: warpstep paint [OPTIONS] model"));
  EXPECT_THAT(outcome.out, HasSubstr("warpstep paint house"));
}

TEST(Program, WithoutASubcommandShowsHelp) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.code, usage);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("Subcommands:"));
  EXPECT_EQ(run({"box"}).code, usage);
}

TEST(Program, NamesTheNearestSubcommand) {
  const Outcome outcome = run({"piant", "house"});
  EXPECT_EQ(outcome.code, usage);
  EXPECT_THAT(outcome.err, HasSubstr("warpstep: unknown command piant; did you mean paint?\n"));
  EXPECT_THAT(run({"box", "opne"}).err,
              HasSubstr("warpstep box: unknown command opne; did you mean open?\n"));
}

TEST(Program, HelpIsAlsoACommand) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "paint"}).out, run({"paint", "--help"}).out);
  EXPECT_EQ(run({"help", "box", "open"}).out, run({"box", "open", "--help"}).out);
  for (const std::vector<const char*>& typo : {std::vector{"piant"}, std::vector{"box", "opne"}}) {
    std::vector<const char*> words{"help"};
    words.insert(words.end(), typo.begin(), typo.end());
    const Outcome outcome = run(words), without = run(typo);
    EXPECT_EQ(outcome.code, usage);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, without.err);
  }
}

TEST(Program, ARepeatedOptionLeavesTheNextWordToOthers) {
  EXPECT_EQ(run({"paint", "--skip", "door", "--skip", "roof", "house"}).out,
            "house 128 false\nwithout door\nwithout roof\n");
  const std::string both = config_file("skip = ['door', 'roof']");
  EXPECT_EQ(run({"paint", "house", "--config", both.c_str()}).out,
            "house 128 false\nwithout door\nwithout roof\n");
}

TEST(Program, NamesTheNearestOption) {
  const Outcome outcome = run({"paint", "house", "--batchsize", "64"});
  EXPECT_EQ(outcome.code, usage);
  EXPECT_THAT(outcome.err, HasSubstr("warpstep paint: unknown option --batchsize; "
                                     "did you mean --batch?\n"));
  EXPECT_THAT(run({"paint", "house", "--bacth=64"}).err, HasSubstr("unknown option --bacth; "
                                                                   "did you mean --batch?\n"));
}

TEST(Program, AMistypedOptionIsNamedBeforeWhatIsMissing) {
  EXPECT_THAT(run({"paint", "--quite"}).err, HasSubstr("did you mean --quiet?"));
}

TEST(Program, RefusesWhatDoesNotFit) {
  EXPECT_THAT(run({"paint"}).err, HasSubstr("model is missing: "));
  EXPECT_THAT(run({"paint", "house", "door"}).err, HasSubstr("unexpected argument door\n"));
  EXPECT_THAT(run({"paint", "house", "--setting", "doors=2", "windows=3"}).err,
              HasSubstr("unexpected argument windows=3; did you mean --setting windows=3?\n"));
  EXPECT_THAT(run({"paint", "house", "--bs", "3"}).err, HasSubstr("did you mean --batch?"));
  EXPECT_THAT(run({"demolish"}).err, HasSubstr("unknown command demolish; there are "));
  EXPECT_EQ(run({"paint", "house", "--batch", "many"}).code, usage);
}

TEST(Program, SaysWhatIsWrongWithAValueInItsOwnWords) {
  struct Case {
    std::vector<const char*> arguments;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {{"--batch"}, "--batch needs a value, --batch N: samples per step (default 128)"},
           {{"--batch", "many"}, "--batch: 'many' is not a whole number"},
           {{"--batch", "1", "-b", "2"}, "--batch is given 2 times (1, 2); give it once"},
           {{"--quiet=maybe"}, "--quiet=maybe: it takes no value; write --quiet, or leave it out"},
           {{"--quiet=7"}, "--quiet=7: it takes no value; write --quiet, or leave it out"},
           {{"--tint", "1"}, "--tint has 1 value (1), but takes 2"},
           {{"--tint", "1", "x"}, "--tint: 'x' is not a number from 0 to 1"},
           {{"--colour", "Rde"}, "--colour: 'Rde' is not one of red, green; did you mean red?"},
           {{"--coats", "0"}, "--coats: '0' is not a whole number from 1 to 9"},
           {{"--coats", "2.0"}, "--coats: '2.0' is not written as a whole number from 1 to 9"},
           {{"--layers", "99999999999999999999"},
            "--layers: '99999999999999999999' is not a whole number from 0 to 1000000000000"},
           {{"--price", "-1"}, "--price: '-1' is not a number of at least 0"},
           {{"--price", "nan"}, "--price: 'nan' is not a number of at least 0"},
           {{"--price", "1e300"}, "--price: '1e300' is too large: the maximum is 3.4e+38"}}) {
    std::vector<const char*> arguments{"paint", "house"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, usage) << c.message;
    EXPECT_EQ(outcome.err.substr(0, outcome.err.find('\n')), "warpstep paint: " + c.message);
  }
  EXPECT_EQ(run({"paint", "house", "--quiet=true", "--tint", "0", "1"}).out, "house 128 true\n");
}

TEST(Config, NamesTheFileAndTheLineOfWhatIsWrong) {
  const auto refused = [](const std::string& text) {
    const std::string path = config_file(text);
    const Outcome outcome = run({"paint", "house", "--config", path.c_str()});
    EXPECT_EQ(outcome.code, usage) << text;
    const std::string before = "warpstep paint: " + path + ": ";
    EXPECT_THAT(outcome.err, testing::StartsWith(before)) << text;
    return outcome.err.substr(before.size(), outcome.err.find('\n') - before.size());
  };
  EXPECT_EQ(refused("coats = 12"), "line 1: coats: '12' is not a whole number from 1 to 9");
  EXPECT_EQ(refused("batch = [1, 2]"), "line 1: batch has 2 values (1, 2), but takes 1");
  EXPECT_EQ(refused("batch = 1\nquiet = [true, false]"),
            "line 2: quiet has 2 values (true, false), but takes 1");
  EXPECT_EQ(refused("\n# quiet\n  quiet = 7"), "line 3: quiet: '7' is neither true nor false");
  EXPECT_EQ(refused("batch = 2\ncoat = 1\ncoats = 3"),
            "line 2: unknown key coat; did you mean coats?");
  EXPECT_EQ(refused("tint = [0,\n  1]\n\"coats\" = 0"),
            "line 3: coats: '0' is not a whole number from 1 to 9");
  EXPECT_EQ(refused("tint = [0,\n  coats]"), "line 1: tint: 'coats' is not a number from 0 to 1");
  EXPECT_EQ(refused("batch = 1\n[data]\ncoats = 1"),
            "line 2: section [data]: write its keys at the top level");
  EXPECT_EQ(refused("batch = 1\nhelp = true"),
            "line 2: --help belongs on the command line, not in a file");
  EXPECT_EQ(refused("quiet = true\nbatch: 1.5"),
            "line 2: 'batch: 1.5' is YAML; files of options are TOML: batch = 64");
  EXPECT_THAT(refused("{\"lr\": 1}"), HasSubstr("it is not the config.json of a run"));
  const std::string twice = config_file("coats = 1");
  EXPECT_THAT(run({"paint", "house", "--config", twice.c_str(), "--config", twice.c_str()}).err,
              HasSubstr("warpstep paint: --config is given twice (" + twice + " and " + twice));
  const std::string path = config_file("coats = 3");
  EXPECT_THAT(run({"paint", "house", "--coats", "0", "--config", path.c_str()}).err,
              HasSubstr("warpstep paint: --coats: '0' is not"));
}

TEST(Config, SuppliesOptionsAndPositionals) {
  const std::string path = config_file("model = \"house\"\nbatch = 16\nquiet = true\n");
  EXPECT_EQ(run({"paint", "--config", path.c_str()}).out, "house 16 true\n");
  EXPECT_EQ(run({"box", "open", "--config", config_file("size = 9").c_str()}).out, "size 9\n");
}

TEST(Config, KeepsWhatIsInQuotes) {
  const std::string path =
      config_file("model = \"runs/lr#1\"  # a comment\nskip = [\"set#2\", 'a,b']\nbatch = 16\n");
  EXPECT_EQ(run({"paint", "--config", path.c_str()}).out,
            "runs/lr#1 16 false\nwithout set#2\nwithout a,b\n");
}

// A run of 5,000 classes has 118 KB.
TEST(Config, ReadsAConfigOfARunWithManyClasses) {
  std::string text = R"({"options": {"batch": 16}, "classes": [)";
  for (int i = 0; i < 20'000; ++i) text += fmt::format("{}\"of the name {}\"", i ? "," : "", i);
  const std::string path = config_file(text + "]}");
  EXPECT_EQ(run({"paint", "house", "--config", path.c_str()}).out, "house 16 false\n");
  const std::string large = config_file("{" + std::string(17 << 20, ' ') + "}");
  EXPECT_THAT(run({"paint", "house", "--config", large.c_str()}).err,
              HasSubstr(large + ": has more than 16777216 bytes; no config.json"));
}

TEST(Config, TheCommandLineWins) {
  const std::string path = config_file("batch = 16\nquiet = true\n");
  EXPECT_EQ(run({"paint", "--config", path.c_str(), "tree", "-b", "5"}).out, "tree 5 true\n");
  EXPECT_EQ(run({"paint", "tree", "-b", "5", "--config", path.c_str()}).out, "tree 5 true\n");
}

TEST(Config, AnUnknownKeyIsAnErrorWithTheNearestName) {
  const Outcome outcome =
      run({"paint", "house", "--config", config_file("batch_size = 16\n").c_str()});
  EXPECT_EQ(outcome.code, usage);
  EXPECT_THAT(outcome.err, HasSubstr("unknown key batch_size; did you mean batch?"));
}

TEST(Config, RefusesSectionsAndMissingFiles) {
  EXPECT_THAT(run({"paint", "house", "--config", config_file("[data]\nbatch = 1\n").c_str()}).err,
              HasSubstr("section [data]"));
  for (const char* line : {"hi", "batch 16", "quiet"})
    EXPECT_THAT(
        run({"paint", "house", "--config", config_file(std::string("# a\n") + line).c_str()}).err,
        HasSubstr(std::string(".toml: line 2: '") + line + "' has no '='"));
  EXPECT_THAT(run({"paint", "house", "--config", config_file("batch: 1.5\n").c_str()}).err,
              HasSubstr("is YAML; files of options are TOML: batch = 64"));
  const Outcome missing = run({"paint", "house", "--config", "/nonexistent.toml"});
  EXPECT_EQ(missing.code, usage);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent.toml"));
}

TEST(Errors, BecomeOneLineAndAnExitCode) {
  const Outcome data = run({"fault", "data"});
  EXPECT_EQ(data.code, failed);
  EXPECT_EQ(data.out, "");
  EXPECT_EQ(data.err, "warpstep fault: a.png: 7 bytes missing\n");
  EXPECT_EQ(run({"fault", "usage"}).code, usage);
  EXPECT_EQ(run({"fault", "interrupt"}).code, interrupted);
  EXPECT_THAT(run({"fault", "memory"}).err, HasSubstr("out of memory"));
  EXPECT_THAT(run({"fault", "path"}).err, HasSubstr("from -> to: Permission denied"));
  EXPECT_THAT(run({"fault", "files"}).err, HasSubstr("run: Too many open files (allow more with"));
  EXPECT_THAT(run({"fault", "other"}).err, HasSubstr("internal error: vector::at"));
  EXPECT_EQ(run({"fault", "other"}).code, failed);
  EXPECT_THAT(run({"fault", "number"}).err,
              HasSubstr("warpstep fault: internal error: an exception of type int, which is"));
  EXPECT_EQ(run({"fault", "number"}).code, failed);
}

// Runs the command with stdout on `file` and returns the exit code.
int run_with_stdout_on(int file, const char* command = "paint", const char* argument = "house") {
  std::fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  dup2(file, STDOUT_FILENO);
  testing::internal::CaptureStderr();
  const std::vector<const char*> arguments{"warpstep", command, argument};
  const int code = run_program({}, arguments);
  testing::internal::GetCapturedStderr();
  dup2(saved, STDOUT_FILENO);
  close(saved);
  std::clearerr(stdout);
  return code;
}

TEST(Output, AReaderThatWentAwayIsNoError) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(run_with_stdout_on(ends[1]), done);
  close(ends[1]);
}

TEST(Output, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  EXPECT_EQ(run_with_stdout_on(full), failed);
  EXPECT_EQ(run_with_stdout_on(full, "fault", "flush"), failed) << "at the end nothing is left";
  close(full);
}

}  // namespace
}  // namespace warpstep::tools
