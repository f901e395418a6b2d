// warpstep runs: a table of the runs below a folder.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "profiler/analysis/table.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/summary.h"
#include "tools/warpstep/text_table.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

constexpr int deepest = 4;  // runs/sweep/group/run: --repeat makes OUT/1, OUT/2, ...

struct RunsRequest {
  std::string folder = "runs";
  std::string sort = "best";
  bool reverse = false;
  std::vector<std::string> filters;
  bool csv = false;
  bool json = false;
};

// Options whose keys are columns of another meaning: the loss of the best evaluation, and the steps
// that were done. Here they have keys of their own. model and data mean the same as their columns.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> renamed_options{
    {{"loss", "criterion"}, {"steps", "max_steps"}}};

// The key of an option in tables and filters, for that in config.json.
std::string column_of(const std::string& option) {
  for (const auto& [own, column] : renamed_options)
    if (option == own) return std::string(column);
  return option;
}

// The reverse.
std::string option_of(const std::string& column) {
  for (const auto& [own, renamed] : renamed_options)
    if (column == renamed) return std::string(own);
  return column;
}

struct RunRecord {
  std::string path;
  Json options;  // of config.json
  std::string outcome;
  std::optional<Scored> best;
  std::uint64_t steps = 0;
  double seconds = -1;  // below 0: unknown
  Items items = Items::images;

  std::string option(const std::string& key) const {
    const auto found = options.find(option_of(key));
    if (found == options.end()) return "-";
    return found->is_string() ? found->get<std::string>() : printed(*found);
  }
};

// The columns that every table has; `settings` stands between data and best.
constexpr std::array fixed_keys{"run", "model", "data", "best", "loss", "steps", "time", "outcome"};

// The content of a file of a run, if there is one. One that cannot be read gets a message.
std::optional<std::string> content_of(const fs::path& file) try {
  return read_file(file);
} catch (const DataError& error) {
  std::error_code none;
  if (fs::exists(file, none)) say("{}; left out\n", printable(error.what()));
  return std::nullopt;
}

// From the lines of metrics.jsonl: the best evaluation, the last step, and the time between the
// first line and the last, which pauses before a resume are part of.
void read_metrics(const fs::path& file, RunRecord& run) {
  std::istringstream lines(content_of(file).value_or(""));
  double first = -1;
  for (std::string text; std::getline(lines, text);) {
    const Json line = parse_json<Json>(text);
    if (!line.is_object()) continue;  // being written, or foreign
    const auto number = [&line](const char* key) {
      const auto found = line.find(key);
      return found != line.end() && found->is_number() ? found->get<double>()
                                                       : std::numeric_limits<double>::quiet_NaN();
    };
    if (const double time = number("time"); std::isfinite(time)) {
      if (first < 0) first = time;
      run.seconds = time - first;
    }
    const double step = number("step"), epoch = number("epoch"), loss = number("loss");
    if (!(step >= 0)) continue;
    run.steps = static_cast<std::uint64_t>(step);
    if (line.value("kind", Json()) != "evaluation" || !std::isfinite(loss)) continue;
    if (line.contains("tokens")) run.items = Items::tokens;
    if (run.steps == 0) continue;  // before training: no checkpoint has these weights
    const double accuracy = number("accuracy");
    const Scored scored{run.steps, epoch >= 0 ? static_cast<std::uint64_t>(epoch) : 0,
                        std::isfinite(accuracy) ? accuracy : 0, loss};
    if (!run.best || scored.better_than(*run.best, run.items)) run.best = scored;
  }
}

std::optional<RunRecord> read_run(const fs::path& folder) {
  const auto text = content_of(folder / "config.json");
  const Json config = parse_json<Json>(text.value_or(""));
  if (!config.is_object() || !config.contains("options") || !config.at("options").is_object()) {
    std::error_code none;
    if (text && fs::exists(folder / "metrics.jsonl", none))
      say("{}: its config.json is damaged; left out\n", printable(folder.string()));
    return std::nullopt;
  }
  RunRecord run{.path = folder.lexically_normal().string(), .options = config.at("options")};
  read_metrics(folder / "metrics.jsonl", run);
  const Json summary = own_summary(folder);  // empty until the run has ended
  run.steps = std::max(run.steps, summary.value("steps", run.steps));  // not every step is logged
  run.outcome = summary.value("outcome", "no summary");
  return run;
}

void find_runs(const fs::path& folder, int depth, std::vector<RunRecord>& runs) {
  if (auto run = read_run(folder)) {
    runs.push_back(std::move(*run));
    return;
  }
  if (depth == deepest) return;
  std::error_code error;  // of a folder that may not be read: it has no runs
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && !entry.is_symlink(error))
      find_runs(entry.path(), depth + 1, runs);
}

double value_of(const RunRecord& run, const std::string& key) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (key == "best")
    return !run.best ? none : run.items == Items::tokens ? -run.best->loss : run.best->accuracy;
  if (key == "loss") return run.best ? run.best->loss : none;
  if (key == "steps") return static_cast<double>(run.steps);
  if (key == "time") return run.seconds < 0 ? none : run.seconds;
  const auto found = run.options.find(option_of(key));
  return found != run.options.end() && found->is_number() ? found->get<double>() : none;
}

std::string text_of(const RunRecord& run, const std::string& key) {
  if (key == "run") return run.path;
  if (key == "outcome") return run.outcome;
  if (key == "steps") return std::to_string(run.steps);
  if (key == "time") return run.seconds < 0 ? "-" : clock_text(run.seconds);
  if (key == "loss") return run.best ? loss_text(run.best->loss) : "-";
  if (key == "best")
    return !run.best                    ? "-"
           : run.items == Items::tokens ? fmt::format("ppl {:.4g}", std::exp(run.best->loss))
                                        : percent(run.best->accuracy);
  return run.option(key);
}

// The key of a column or of an option: "weight-decay" is weight_decay.
std::string resolve_key(std::string key, const char* option) {
  std::replace(key.begin(), key.end(), '-', '_');
  std::vector<std::string> known(fixed_keys.begin(), fixed_keys.end());
  for (const OptionName& name : option_names()) known.push_back(column_of(name.key));
  if (std::find(known.begin(), known.end(), key) == known.end())
    fail<UsageError>("{}: no column or option is called '{}'{}", option, key,
                     suggestion(key, known));
  return key;
}

bool is_same(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  constexpr double exact = 1ULL << 53;  // beyond, doubles are equal of different whole numbers
  return a == b ||
         (!a.empty() && !b.empty() && *end_a == 0 && *end_b == 0 && x == y && std::abs(x) < exact);
}

// "loss=nll" means the option, and would find nothing.
void require_value_of_column(const std::string& filter, const std::string& key,
                             const std::string& value) {
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  if (value == "-" || (!value.empty() && *end == 0) || column_of(key) == key) return;
  fail<UsageError>("--filter {}: the column '{}' has numbers; the option --{} is '{}' here", filter,
                   key, key, column_of(key));
}

void filter(std::vector<RunRecord>& runs, const std::vector<std::string>& filters) {
  for (const std::string& text : filters) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos || at == 0)
      fail<UsageError>("--filter {}: write KEY=VALUE, for example model=mlp or lr=0.01", text);
    const std::string key = resolve_key(text.substr(0, at), "--filter");
    require_value_of_column(text, key, text.substr(at + 1));
    std::erase_if(runs, [&](const RunRecord& run) {
      return !is_same(text_of(run, key), text.substr(at + 1));
    });
  }
}

// The best first, otherwise the smallest; runs without the value last.
void sort(std::vector<RunRecord>& runs, const std::string& key, bool reverse) {
  const bool falls = (key == "best") != reverse;
  std::stable_sort(runs.begin(), runs.end(), [&](const RunRecord& a, const RunRecord& b) {
    const double x = value_of(a, key), y = value_of(b, key);
    if (std::isnan(x) && std::isnan(y)) {
      const std::string p = text_of(a, key), q = text_of(b, key);
      return falls ? p > q : p < q;
    }
    if (std::isnan(x) || std::isnan(y)) return std::isnan(y) && !std::isnan(x);
    return falls ? x > y : x < y;
  });
}

// Options whose values are not equal in all runs, in the table's order. Mean and standard deviation
// follow from the data; paths of outputs differ always.
std::vector<std::string> differing(const std::vector<RunRecord>& runs) {
  static const std::set<std::string> left_out{"model", "data",        "out",          "mean",
                                              "std",   "profile_raw", "profile_rank", "steps"};
  std::vector<std::string> keys;
  for (const OptionName& name : option_names()) {
    if (left_out.contains(name.key)) continue;
    std::set<std::string> values;
    const std::string key = column_of(name.key);
    for (const RunRecord& run : runs)
      if (run.options.contains(name.key)) values.insert(run.option(key));
    if (values.size() > 1) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> columns_of(const std::vector<std::string>& settings) {
  std::vector<std::string> keys{"run", "model", "data"};
  keys.insert(keys.end(), settings.begin(), settings.end());
  keys.insert(keys.end(), {"best", "loss", "steps", "time", "outcome"});
  return keys;
}

Json json_of(const RunRecord& run, const std::vector<std::string>& settings) {
  Json json{{"run", run.path}, {"model", run.option("model")}, {"data", run.option("data")}};
  json["settings"] = Json::object();
  for (const std::string& key : settings)
    json["settings"][option_of(key)] = run.options.value(option_of(key), Json());
  json["best"] = Json();
  if (run.best) {
    json["best"] = {{"step", run.best->step}, {"epoch", run.best->epoch}, {"loss", run.best->loss}};
    if (run.items == Items::images) json["best"]["accuracy"] = run.best->accuracy;
  }
  json["steps"] = run.steps;
  json["seconds"] = run.seconds < 0 ? Json() : Json(run.seconds);
  json["outcome"] = run.outcome;
  return json;
}

// Numbers as such, for a spreadsheet.
profiler::Cell csv_cell(const RunRecord& run, const std::string& key) {
  if (key == "best")
    return run.best && run.items == Items::images ? profiler::Cell(run.best->accuracy)
                                                  : profiler::Cell();
  if (key == "steps") return static_cast<std::int64_t>(run.steps);
  if (const auto option = run.options.find(option_of(key));
      std::ranges::find(fixed_keys, key) == fixed_keys.end() && option != run.options.end() &&
      option->is_number_integer())
    return option->is_number_unsigned() && option->get<std::uint64_t>() > INT64_MAX
               ? profiler::Cell(text_of(run, key))
               : profiler::Cell(option->get<std::int64_t>());
  if (const double value = value_of(run, key); !std::isnan(value)) return value;
  return key == "time" || key == "loss" ? profiler::Cell() : text_of(run, key);
}

void print_csv(const std::vector<RunRecord>& runs, const std::vector<std::string>& keys) {
  profiler::Table table;
  for (const std::string& key : keys)
    table.columns.push_back({key == "best" ? "accuracy" : key == "time" ? "seconds" : key, ""});
  for (const RunRecord& run : runs)
    for (auto& row = table.rows.emplace_back(); const std::string& key : keys)
      row.push_back(csv_cell(run, key));
  fmt::print("{}", profiler::to_csv(table));
}

void print_table(const std::vector<RunRecord>& runs, const std::vector<std::string>& keys) {
  static const std::set<std::string> numbers{"best", "loss", "steps", "time"};
  TextTable table;
  for (const std::string& key : keys)
    table.columns.push_back({key, numbers.contains(key) || !std::isnan(value_of(runs[0], key))});
  for (const RunRecord& run : runs) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& key : keys) row.push_back(text_of(run, key));
  }
  fmt::print("{}", table.text());
}

int list_runs(const RunsRequest& request) {
  if (request.csv && request.json) fail<UsageError>("--csv and --json do not go together");
  if (!fs::is_directory(request.folder))
    fail<DataError>("{}: there is no such folder; `warpstep train` writes runs to runs/, or --out",
                    request.folder);
  std::vector<RunRecord> runs;
  find_runs(request.folder, 0, runs);
  if (runs.empty())
    fail<DataError>("{}: no run is in it: no folder with a config.json, {} levels deep",
                    request.folder, deepest);
  filter(runs, request.filters);
  sort(runs, "run", false);
  sort(runs, resolve_key(request.sort, "--sort"), request.reverse);
  const std::vector<std::string> settings = differing(runs);
  if (request.json) {
    Json all = Json::array();
    for (const RunRecord& run : runs) all.push_back(json_of(run, settings));
    fmt::print("{}\n", printed(all, 2));
  } else if (request.csv) {
    print_csv(runs, columns_of(settings));
  } else if (runs.empty()) {
    fail<DataError>("{}: no run passes the filters", request.folder);
  } else {
    print_table(runs, columns_of(settings));
  }
  return done;
}

Run declare_runs(Parser parser) {
  auto request = std::make_shared<RunsRequest>();
  parser.add({.name = "folder",
              .variable = &request->folder,
              .help = "folder with run directories, at any of four levels"});
  parser.add({.name = "--sort",
              .variable = &request->sort,
              .help =
                  "column or option to sort by; best: highest accuracy, for text lowest loss; the "
                  "options --loss and --steps are criterion and max_steps",
              .type = "KEY"});
  parser.add({.name = "--reverse", .variable = &request->reverse, .help = "reverse the order"});
  parser.add({.name = "--filter",
              .variable = &request->filters,
              .help = "only runs with this value of a column or option; may be repeated",
              .type = "KEY=VALUE",
              .repeats = true});
  parser.add({.name = "--csv", .variable = &request->csv, .help = "print CSV, times in seconds"});
  parser.add({.name = "--json", .variable = &request->json, .help = "print a JSON array"});
  parser.footer(
      "Examples:\n  warpstep runs\n"
      "  warpstep runs sweeps/first --filter model=cifar10cnn --sort lr --csv");
  return [request] { return list_runs(*request); };
}

const Command runs_command("runs", "list runs in a table: what differs, best evaluation, time",
                           declare_runs);

}  // namespace
}  // namespace warpstep::tools
