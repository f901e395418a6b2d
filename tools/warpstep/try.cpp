// Two processes train the same run, one of them with the change. While one computes the other is
// stopped, so that both meet the same machine: what other programs, clocks and the host's other
// machines do for longer than two turns slows down both. compare_turns() has the statistics.
#include "tools/warpstep/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/core/thread.h"
#include "profiler/analysis/tables.h"
#include "profiler/analysis/turns.h"
#include "tools/warpstep/child.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

struct TryOptions {
  std::string run;
  RunOptions changed;  // only those that are given count
  std::vector<std::string> environment;
  std::string program;
  std::uint64_t starts = 3, turns = 0;  // turns 0: chosen
  double turn_seconds = 0;
  std::string keep;
  bool json = false;
};

// The sd of the logarithm by which two processes that do the same differ throughout, by where
// their memory lies.
constexpr double between_starts = 0.0091;

constexpr std::uint64_t warm_steps = 3;  // after which a process waits for its first turn
// Of equal lengths in all, turns of 0.1 s gave intervals half as wide as turns of 0.5 s: the faster
// the sides alternate, the more of the machine's changes they have in common.
constexpr double least_turn = 0.1, most_turn = 60, steps_of_turn = 5;
constexpr double seconds_of_start = 5;  // of each side, with at least `least_turns`
constexpr std::uint64_t least_turns = 10;

// SIGINT and the like end it after its processes and files are gone.
struct Interrupted {};

Json config_of(const fs::path& run) {
  const fs::path file = run / "config.json";
  std::error_code none;
  if (!fs::exists(file, none))
    fail<DataError>("{}: has no config.json; name a run directory of warpstep train{}",
                    run.string(), nearest_folder(run));
  try {
    return parse_json<Json>(read_file(file));
  } catch (const Json::exception&) {
    fail<DataError>("{}: is not JSON; name another run", file.string());
  }
}

// What differs from the run, as a user would type it: "--workers 2 OMP_WAIT_POLICY=active".
std::string text_of_change(const Parser& parser, const TryOptions& options, const Json& config) {
  const std::string file = (fs::path(options.run) / "config.json").string();
  const RunOptions stored = stored_options(config, file, parser, options.changed);
  const RunOptions now = merged(
      parser, options.changed, stored,
      {"run", "--starts", "--turns", "--turn-seconds", "--env", "--program", "--keep", "--json"});
  std::vector<std::string> parts;
  for (const OptionChange& change : changes(stored, now)) parts.push_back(change.option);
  parts.insert(parts.end(), options.environment.begin(), options.environment.end());
  if (!options.program.empty()) parts.push_back(options.program);
  if (!parts.empty()) return fmt::format("{}", fmt::join(parts, " "));
  const std::vector<std::string> words = as_typed(parser, options.changed);
  if (words.empty())
    fail<UsageError>(
        "what to try? Give options that the run did not have, for example: warpstep try {} "
        "--workers 2",
        shell_word(options.run));
  fail<UsageError>("{} is what {} had; give another value", fmt::join(words, " "), options.run);
}

// The run's configuration without an end, and without what would happen between its steps. Its mean
// and deviation are given, not measured again, unless the pixels are others.
Json endless(Json config, const Parser& parser) {
  Json& options = config["options"];
  for (const char* const key :
       {"steps", "eval_every", "patience", "checkpoint_every", "keep_checkpoints", "profile",
        "profile_schedule", "profile_raw", "profile_rank", "profile_counters", "out"})
    options.erase(key);
  options["epochs"] = 1'000'000'000;
  options["eval_first"] = "off";
  options["keep_best"] = false;
  const bool has_other_pixels =
      parser.given("--data") || parser.given("--transforms") || parser.given("--alpha");
  if (!has_other_pixels) config.erase("measured");
  return config;
}

// A folder for the runs, which goes with this object unless it was asked for.
class Folder {
 public:
  explicit Folder(const TryOptions& options)
      : path_(options.keep), is_kept_(!options.keep.empty()) {
    std::error_code error;
    if (is_kept_) {
      if (fs::exists(path_, error) && !fs::is_empty(path_, error))
        fail<UsageError>("--keep {}: is not empty; choose another", options.keep);
      fs::create_directories(path_, error);
    } else {
      std::string name = fs::path(options.run).lexically_normal().string();
      while (name.size() > 1 && name.back() == '/') name.pop_back();
      name += ".try-XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) error.assign(errno, std::generic_category());
      path_ = name;
    }
    if (error)
      fail<DataError>("cannot create {}: {}; --keep DIR has the runs elsewhere", path_.string(),
                      error.message());
  }
  ~Folder() {
    std::error_code none;
    if (!is_kept_) fs::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool is_kept_;
};

// The number and the time of the last step in a metrics.jsonl.
struct LoggedStep {
  std::uint64_t step = 0;  // 0: it has none
  double ms = 0;
};
LoggedStep last_logged_step(const fs::path& metrics) {
  std::error_code none;
  LoggedStep last;
  if (!fs::exists(metrics, none)) return last;
  const std::string text = read_file(metrics);
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    const Json line = parse_json<Json>(std::string_view(text).substr(at, end - at));
    if (line.value("kind", "") != "step") continue;
    last = {line.value("step", std::uint64_t{0}), 0};
    for (const char* const part : {"data_ms", "copies_ms", "kernels_ms", "cpu_ms", "other_ms"})
      last.ms += line.value(part, 0.0);
  }
  return last;
}

// One of the two processes of a start.
class Side {
 public:
  Side(std::string what, fs::path run, std::vector<std::string> arguments, ChildOptions options,
       const std::atomic<bool>& stop)
      : what_(std::move(what)),
        run_(std::move(run)),
        log_(run_.string() + ".log"),
        stop_(stop),
        child_(with_output(std::move(arguments)), into_log(std::move(options))) {}

  // Runs until its first steps are done, and stops it. Returns the ms of its last step.
  double warm_up() {
    for (;;) {
      const LoggedStep logged = last_logged_step(run_ / "metrics.jsonl");
      if (logged.step >= warm_steps) {
        pause();
        return logged.ms;
      }
      require_alive();
      wait(0.02);
    }
  }

  profiler::Turn take_turn(double seconds, bool is_changed) {
    profiler::Turn turn{.is_changed = is_changed, .begin_ns = now_ns()};
    child_.resume();
    wait(seconds);
    turn.end_ns = now_ns();
    pause();
    return turn;
  }

  void end() const { child_.end(); }
  profiler::Session session() {
    while (!child_.exit_code()) wait(0.02);
    if (child_.exit_code() != interrupted) require_alive();
    return profiler::read_session(run_ / "session.prof");
  }

 private:
  std::vector<std::string> with_output(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--out", run_.string()});
    return arguments;
  }
  ChildOptions into_log(ChildOptions options) const {
    options.output = log_;
    options.is_apart = true;
    return options;
  }
  void pause() {
    if (!child_.pause()) require_alive();
  }
  void require_alive() {
    const std::optional<int> code = child_.exit_code();
    if (!code) return;
    std::string text = read_file(log_);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    text.erase(0, text.rfind('\n') + 1);
    if (text.empty()) text = *code == 127 ? "it cannot be executed" : "without a message";
    fail<Error>("{} ended with code {}: {}", what_, *code, printable(text));
  }
  void wait(double seconds) const {
    const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
    for (std::uint64_t now = now_ns(); now < end; now = now_ns()) {
      if (stop_) throw Interrupted();
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(std::min<std::uint64_t>(end - now, 20'000'000)));
    }
  }

  std::string what_;
  fs::path run_, log_;
  const std::atomic<bool>& stop_;
  Child child_;
};

struct TakenTurns {
  profiler::Session before, changed;
  std::vector<profiler::Turn> turns;
};

// Both processes are started, take their turns and end.
TakenTurns take_turns(const TryOptions& options, const std::string& change,
                      const std::vector<std::string>& words, const fs::path& folder,
                      std::uint64_t number, const std::atomic<bool>& stop) {
  const std::vector<std::string> command{
      "warpstep", "train", "--config", (folder / "config.json").string(), "--dist", "none"};
  std::vector<std::string> with_change = command;
  with_change.insert(with_change.end(), words.begin(), words.end());
  ChildOptions changed_process{.environment = options.environment};
  if (!options.program.empty()) changed_process.program = options.program;
  const fs::path place = folder / std::to_string(number);
  fs::create_directories(place);
  say("start {} of {}: the first steps of both\n", number, options.starts);
  // The first process to be started is stopped before the other one begins; each side is first in
  // turn.
  std::vector<Side> sides;
  sides.reserve(2);
  const bool changed_first = number % 2 == 0;
  double step_ms = 0;
  for (const bool is_changed : {changed_first, !changed_first}) {
    sides.emplace_back(is_changed ? "the run with " + change : "the run as it was",
                       place / (is_changed ? "changed" : "before"),
                       is_changed ? with_change : command,
                       is_changed ? changed_process : ChildOptions(), stop);
    step_ms = std::max(step_ms, sides.back().warm_up());
  }
  Side& before = sides[changed_first ? 1 : 0];
  Side& changed = sides[changed_first ? 0 : 1];
  const double seconds = options.turn_seconds > 0
                             ? options.turn_seconds
                             : std::clamp(steps_of_turn * step_ms / 1000, least_turn, most_turn);
  const std::uint64_t turns =
      options.turns > 0
          ? options.turns
          : std::max(least_turns,
                     static_cast<std::uint64_t>(std::ceil(seconds_of_start / seconds)));
  say("start {} of {}: {} turns of {:.2g} s per side\n", number, options.starts, turns, seconds);
  TakenTurns taken;
  for (std::uint64_t pair = 0; pair < turns; ++pair)
    for (const bool is_changed : {pair % 2 == 1, pair % 2 == 0})
      taken.turns.push_back((is_changed ? changed : before).take_turn(seconds, is_changed));
  Json kept = Json::array();
  for (const profiler::Turn& turn : taken.turns)
    kept.push_back({{"side", turn.is_changed ? "changed" : "before"},
                    {"begin_ns", turn.begin_ns},
                    {"end_ns", turn.end_ns}});
  write_atomically(place / "turns.json", printed(kept, 1) + "\n");
  before.end();
  changed.end();
  taken.before = before.session();
  taken.changed = changed.session();
  return taken;
}

struct Row {
  const char* name;
  double profiler::TurnMeans::*ns;
};
constexpr std::array rows{Row{"step", &profiler::TurnMeans::step_ns},
                          Row{"  waiting for data", &profiler::TurnMeans::data_ns},
                          Row{"  copies", &profiler::TurnMeans::copies_ns},
                          Row{"  kernels", &profiler::TurnMeans::kernels_ns},
                          Row{"  CPU", &profiler::TurnMeans::cpu_ns},
                          Row{"  other", &profiler::TurnMeans::other_ns}};

std::string less_or_more(double ratio) {
  return fmt::format("{:.1f} % {}", 100 * std::abs(ratio - 1), ratio < 1 ? "less" : "more");
}

// `items`: "samples" or "tokens".
std::string verdict(const profiler::TurnComparison& found, const std::string& change,
                    std::string_view items) {
  const std::string_view what =
      found.before.samples == found.changed.samples ? "step" : items.substr(0, items.size() - 1);
  const std::string interval =
      fmt::format("95 % interval: {} to {}", less_or_more(found.low), less_or_more(found.high));
  if (found.is_significant())
    return fmt::format("With {} a {} takes {} time ({}).", change, what, less_or_more(found.ratio),
                       interval);
  return fmt::format(
      "No significant difference: with {} a {} takes {} time ({}). These turns can show changes of "
      "{:.1f} % or more; more --starts can show smaller ones.",
      change, what, less_or_more(found.ratio), interval, 100 * found.smallest_change());
}

void print(const profiler::TurnComparison& found, const std::string& change,
           std::string_view items) {
  fmt::print("{}\n\n{:<20} {:>10} {:>10}\n", printable(verdict(found, change, items)), "mean",
             "before", "changed");
  for (const Row& row : rows)
    fmt::print("{:<20} {:>10} {:>10}\n", row.name, quantity(found.before.*row.ns, Unit::ns),
               quantity(found.changed.*row.ns, Unit::ns));
  fmt::print("{:<20} {:>10} {:>10}\n", fmt::format("{}/s", items),
             grouped(1e9 / found.before.sample_ns()), grouped(1e9 / found.changed.sample_ns()));
  fmt::print("{:<20} {:>10} {:>10}\n", "steps counted", grouped(found.before.steps),
             grouped(found.changed.steps));
}

Json side_json(const profiler::TurnMeans& means) {
  return {{"steps", means.steps},         {"samples_per_step", means.samples},
          {"step_ns", means.step_ns},     {"data_ns", means.data_ns},
          {"copies_ns", means.copies_ns}, {"kernels_ns", means.kernels_ns},
          {"cpu_ns", means.cpu_ns},       {"other_ns", means.other_ns}};
}

Json as_json(const profiler::TurnComparison& found, const std::string& change,
             std::string_view items, std::uint64_t starts) {
  return {{"verdict", verdict(found, change, items)},
          {"changed", found.is_significant()},
          {"ratio", found.ratio},
          {"low", found.low},
          {"high", found.high},
          {"smallest_change", found.smallest_change()},
          {"starts", starts},
          {"pairs_of_turns", found.pairs},
          {"before", side_json(found.before)},
          {"after", side_json(found.changed)}};
}

int try_change(const Parser& parser, const TryOptions& options) {
  static std::atomic<bool> stop{false};  // outlives the thread that sets it
  static SignalThread& signals = *new SignalThread;
  const Json config = config_of(options.run);
  if (const int ranks = ranks_of(config); ranks > 1)
    fail<UsageError>("{} trained in {} processes, and try compares runs of one", options.run,
                     ranks);
  const std::string change = text_of_change(parser, options, config);
  const std::vector<std::string> words = as_typed(parser, options.changed);
  signals.stop_with(stop);
  const Folder folder(options);
  write_atomically(folder.path() / "config.json", printed(endless(config, parser), 2));
  try {
    std::deque<TakenTurns> starts;
    std::vector<profiler::LivePair> pairs;
    for (std::uint64_t i = 1; i <= options.starts; ++i) {
      const TakenTurns& start =
          starts.emplace_back(take_turns(options, change, words, folder.path(), i, stop));
      pairs.push_back({&start.before, &start.changed, start.turns});
      say("start {} of {}: {} time\n", i, options.starts,
          less_or_more(profiler::compare_turns({pairs.back()}, between_starts).ratio));
    }
    const profiler::TurnComparison found = profiler::compare_turns(pairs, between_starts);
    const std::string_view items = profiler::items(starts.front().before);
    if (options.json)
      fmt::print("{}\n", printed(as_json(found, change, items, options.starts), 2));
    else
      print(found, change, items);
    return done;
  } catch (const Interrupted&) {
    say("interrupted\n");
    return interrupted;
  }
}

Run declare_try(Parser parser) {
  auto options = std::make_shared<TryOptions>();
  parser.add({.name = "run",
              .variable = &options->run,
              .help = "run directory, whose command is run again",
              .type = "RUN",
              .required = true});
  const char* const group = "Try";
  parser.add({.name = "--env",
              .variable = &options->environment,
              .help = "an environment variable of the changed side; may be repeated",
              .check = parsed_by([](const std::string& text) {
                if (text.find('=') == std::string::npos || text.front() == '=')
                  fail<UsageError>("'{}' is not NAME=VALUE", text);
              }),
              .type = "NAME=VALUE",
              .group = group,
              .repeats = true});
  parser.add({.name = "--program",
              .variable = &options->program,
              .help = "another build of warpstep for the changed side",
              .type = "FILE",
              .group = group});
  parser.add({.name = "--starts",
              .variable = &options->starts,
              .help = "how often both sides are started: equal processes differ, too",
              .check = whole_number(1, 100),
              .group = group});
  parser.add(
      {.name = "--turns",
       .variable = &options->turns,
       .help = "turns of each side per start; if not given, as many as take 5 s, and 10 or more",
       .check = whole_number(3, 10'000),
       .group = group,
       .initial = "-"});
  parser.add({.name = "--turn-seconds",
              .variable = &options->turn_seconds,
              .help = "length of a turn; if not given, five steps, and 0.1 s or more",
              .check = number_in_range(0.05, 3600),
              .group = group,
              .initial = "-"});
  parser.add(
      {.name = "--keep",
       .variable = &options->keep,
       .help = "keep the runs in this directory; otherwise they are beside RUN until the end",
       .type = "DIR",
       .group = group});
  parser.add({.name = "--json",
              .variable = &options->json,
              .help = "print the result as JSON",
              .group = group});
  declare_run_options(parser, options->changed, try_only);
  parser.footer(
      "Examples:\n  warpstep try runs/first --workers 2\n"
      "  warpstep try runs/first --precision bf16 --batch 256 --starts 5\n"
      "  warpstep try runs/first --env OMP_WAIT_POLICY=active\n"
      "  warpstep try runs/first --program other-build/bin/warpstep");
  return [parser, options] { return try_change(parser, *options); };
}

const Command try_command("try", "measure what a changed option does to a run's steps",
                          declare_try);

}  // namespace

std::string line_that_tries(const profiler::Analysis& analysis, const std::filesystem::path& run) {
  std::error_code none;
  if (!std::filesystem::exists(run / "config.json", none) ||
      std::filesystem::exists(run / "ranks", none))  // of several processes
    return {};
  const Parser parser;
  RunOptions unused;
  declare_run_options(parser, unused, try_only);
  for (const profiler::Finding& finding : analysis.findings) {
    const std::string name = finding.flag.substr(0, finding.flag.find(' '));
    if (name.starts_with("--") && !finding.outside_steps && parser.has(name))
      return fmt::format("To measure what that changes: warpstep try {} {}\n",
                         shell_word(run.string()), finding.flag);
  }
  return {};
}

}  // namespace warpstep::tools
