#include "tools/warpstep/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "tests/build_tree.h"
#include "tests/data_testing.h"
#include "tools/warpstep/command_config.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/option_table.h"

namespace warpstep::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A command line with these words, and what it typed.
struct Line {
  Parser parser;
  RunOptions typed;
  explicit Line(const std::vector<std::string>& words = {}) {
    declare_run_options(parser, typed, train_only);
    parser.parse(words);
  }
};

// Each different from its default where there is more than one.
Json stored() {
  RunOptions options;
  options.model = "mlp";
  options.data = "set";
  options.lr = 0.1 + 0.2;  // 17 digits
  options.class_weights = {1, 2.5, 0};
  options.mean = {0.5};
  options.std = {1.0 / 3};
  options.no_fuse = {"bias"};
  options.recompute = {"fc1"};
  options.shuffle = "window:64";
  options.memory = "2GiB";
  options.seed = std::numeric_limits<std::uint64_t>::max();
  options.profile_raw = "raw";
  options.profile_rank = "0@localhost:4000";
  options.out = "run";
  options.accumulate = 3;
  options.global_batch = 32;
  options.ema = 0.99;
  options.sync_bn = true;
  options.shard_optimizer = "on";
  return options;
}

RunOptions read(const Json& options, const Line& line = Line()) {
  return stored_options({{"options", options}}, "run/c.safetensors", line.parser, line.typed);
}

std::string refusal(const Json& options) try {
  static const Line line;
  const Json taken = read(options, line);
  // What was taken is what stood there: nothing was cut, rounded or wrapped round.
  const Json meant = as_written_now(options);
  for (const auto& [key, value] : meant.items()) EXPECT_EQ(taken[key], value) << key;
  return {};
} catch (const DataError& error) {
  return error.what();
}

TEST(StoredOptions, AreReadAsTheyWereWritten) {
  EXPECT_EQ(Json(read(stored())), stored());
  EXPECT_EQ(Json(read(Json(RunOptions()))), Json(RunOptions()));
  EXPECT_EQ(Json(read(Json::object())), Json(RunOptions())) << "older runs had fewer";
}

TEST(StoredOptions, MeanWhatOlderVersionsMeant) {
  EXPECT_EQ(read({{"shard_optimizer", false}}).shard_optimizer, "off");
  EXPECT_EQ(read({{"shard_optimizer", true}}).shard_optimizer, "on");
  EXPECT_EQ(read({{"seed", 7}}).val_seed, 7);
  EXPECT_EQ(read({{"seed", 7}, {"val_seed", 3}}).val_seed, 3);
}

// Every field with everything: taken as it stands, or refused by file, field and option.
TEST(StoredOptions, AreTakenOrRefusedByName) {
  const Json whole = stored();
  const std::vector<Json> instead{nullptr,
                                  true,
                                  -1,
                                  0,
                                  1,
                                  7,
                                  6.5,
                                  -0.5,
                                  1e300,
                                  1'000'000'000'001,
                                  "",
                                  "x",
                                  "nan",
                                  "-1",
                                  "7",
                                  Json::array(),
                                  {-1.0, -1.0},
                                  {0.5},
                                  {0.5, 0.5},
                                  {"x", nullptr},
                                  {{"a", 1}},
                                  Json::array({Json::array()}),
                                  std::numeric_limits<std::uint64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min(),
                                  std::string(300, 'x'),
                                  "[a,b]"};
  int refused = 0;
  for (const auto& [key, value] : whole.items())
    for (const Json& other : instead) {
      Json changed = whole;
      changed[key] = other;
      const std::string message = refusal(changed);
      if (message.empty()) continue;
      EXPECT_THAT(message, AllOf(HasSubstr("run/c.safetensors: "), HasSubstr("'" + key + "'")));
      ++refused;
    }
  EXPECT_GT(refused, 700);
}

TEST(StoredOptions, KeepTheCommandLinesRules) {
  const auto with = [](const char* key, const Json& value) { return refusal({{key, value}}); };
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"accumulate", 0},
                                                           {"accumulate", -3},
                                                           {"log_every", 0},
                                                           {"ema", 2},
                                                           {"ema", 1},
                                                           {"class_weights", {-1}},
                                                           {"warmup_steps", -5},
                                                           {"limit_batches", -1},
                                                           {"seed", -1},
                                                           {"epochs", std::uint64_t{1} << 63},
                                                           {"threads", 1'000'000'000},
                                                           {"betas", Json::array()},
                                                           {"betas", {0.9}},
                                                           {"betas", {0.9, 0.99, 0.999}},
                                                           {"betas", {0.9, 2}},
                                                           {"batch", "x"},
                                                           {"batch", 0},
                                                           {"batch", 1 << 21},
                                                           {"model", nullptr},
                                                           {"model", "mlpp"},
                                                           {"lr", "nan"},
                                                           {"lr", -0.5},
                                                           {"normalize", 5},
                                                           {"normalize", "gpu"},
                                                           {"data", nullptr},
                                                           {"optimizer", "sgdd"},
                                                           {"precision", "fp64"},
                                                           {"shuffle", "window:1"},
                                                           {"transforms", "nonsense"},
                                                           {"memory", "-2GiB"},
                                                           {"workers", 257},
                                                           {"prefetch", 1},
                                                           {"profile", "all"},
                                                           {"profile_schedule", "x=1"},
                                                           {"std", {-1}},
                                                           {"mean", {1, 1, 1, 1, 1}},
                                                           {"lr_step_epochs", 0},
                                                           {"label_smoothing", 1.5},
                                                           {"momentum", 1.5},
                                                           {"keep_best", 1}})
    EXPECT_THAT(with(key, value), HasSubstr(std::string("'") + key + "'")) << value;
  EXPECT_THAT(with("accumulate", 0), AllOf(HasSubstr("'0' is not a whole number from 1 to"),
                                           HasSubstr("give --accumulate on the command line")));
  for (const Json& broken : {Json(), Json(7), Json({{"options", 7}}), Json::object()})
    EXPECT_THROW(stored_options(broken, "f", Line().parser, {}), DataError);
}

TEST(StoredOptions, MayBeReplacedOnTheCommandLine) {
  Json broken = stored();
  broken["accumulate"] = 0;
  broken["batch"] = "x";
  const Line line({"--accumulate", "4", "--batch", "16", "--lr", "0.5"});
  const RunOptions own = read(broken, line);
  EXPECT_EQ(own.accumulate, 4);
  EXPECT_EQ(own.lr, 0.1 + 0.2) << "the run's own, as it can be used";
  const RunOptions now = merged(line.parser, line.typed, own, {});
  EXPECT_EQ(now.lr, 0.5);
  EXPECT_EQ(now.ema, 0.99);
}

// A value of each kind that is valid and not the default.
const Json& all_changed() {
  static const Json changed{{"model", "mlp"},
                            {"data", "set"},
                            {"limit_batches", 3},
                            {"transforms", "normalize"},
                            {"eval_transforms", "none"},
                            {"mean", {0.5, 0.25}},
                            {"std", {0.1, 1.0 / 3}},
                            {"shuffle", "window:64"},
                            {"data_errors", "skip"},
                            {"max_bad", 0.5},
                            {"workers", 2},
                            {"prefetch", 4},
                            {"tier", "mapped"},
                            {"normalize", "cpu"},
                            {"memory", "2GiB"},
                            {"data_io", "pread"},
                            {"batch", 16},
                            {"global_batch", 32},
                            {"precision", "bf16"},
                            {"no_fuse", {"conv+relu", "bias"}},
                            {"recompute", {"fc1"}},
                            {"loss", "nll"},
                            {"label_smoothing", 0.1},
                            {"class_weights", {1.0, 2.5, 0.0}},
                            {"optimizer", "sgd"},
                            {"momentum", 0.9},
                            {"nesterov", true},
                            {"weight_decay", 1e-4},
                            {"decay", "matrices"},
                            {"sequence", 48},
                            {"windows", "random"},
                            {"val_split", 0.25},
                            {"val_seed", 5},
                            {"alpha", "white"},
                            {"patience", 3},
                            {"min_delta", 0.01},
                            {"monitor", "loss"},
                            {"rms_alpha", 0.9},
                            {"model_option", {"layers=2", "heads=3"}},
                            {"lr_final", 1e-5},
                            {"eval_every", 7},
                            {"eval_first", "on"},
                            {"stats_every", 9},
                            {"betas", {0.8, 0.9}},
                            {"epsilon", 1e-6},
                            {"trust", 0.01},
                            {"moments", "bf16"},
                            {"clip_norm", 1.5},
                            {"accumulate", 3},
                            {"sync_bn", true},
                            {"shard_optimizer", "on"},
                            {"ema", 0.99},
                            {"epochs", 7},
                            {"steps", 100},
                            {"lr", 0.1 + 0.2},
                            {"lr_schedule", "cosine"},
                            {"warmup_steps", 5},
                            {"lr_step_epochs", 2},
                            {"lr_gamma", 0.5},
                            {"seed", std::numeric_limits<std::uint64_t>::max()},
                            {"device", "cuda:1"},
                            {"threads", 2},
                            {"pin_cpus", "0-1"},
                            {"exact_math", true},
                            {"deterministic", true},
                            {"autotune", true},
                            {"workspace_mib", 64},
                            {"plan_cache", "off"},
                            {"no_graph", true},
                            {"steps_per_launch", 8},
                            {"profile", "spans"},
                            {"profile_schedule", "skip_first=1"},
                            {"profile_raw", "raw"},
                            {"profile_rank", "1@localhost:4000"},
                            {"profile_counters", true},
                            {"log_every", 1},
                            {"checkpoint_every", 9},
                            {"keep_checkpoints", 0},
                            {"keep_best", false},
                            {"tensorboard", true},
                            {"plugin", testing_support::binary_dir() + "/lib/naive_loss.so"},
                            {"out", "run"}};
  return changed;
}

// `changed` has every option of the table, so that a new option needs a value here.
TEST(OptionTable, WritesAndReadsEveryOption) {
  const Json defaults = RunOptions();
  for (const OptionName& option : option_names()) {
    ASSERT_TRUE(all_changed().contains(option.key)) << option.name;
    ASSERT_TRUE(defaults.contains(option.key)) << option.name;
    EXPECT_NE(all_changed()[option.key], defaults[option.key]) << option.name;
  }
  EXPECT_EQ(all_changed().size(), defaults.size());
  const Json read_back = read(all_changed());
  EXPECT_EQ(read_back.size(), defaults.size());
  for (const auto& [key, value] : all_changed().items()) EXPECT_EQ(read_back[key], value) << key;
}

// The same values on the command line.
TEST(OptionTable, ParsesEveryOption) {
  std::vector<std::string> words;
  for (const OptionName& option : option_names()) {
    const Json& value = all_changed()[option.key];
    const auto typed = [](const Json& json) {
      return json.is_string() ? json.get<std::string>() : json.dump();
    };
    if (option.key == "keep_best") {
      words.emplace_back("--no-keep-best");
    } else if (option.key == "class_weights") {
      words.insert(words.end(), {option.name, "1,2.5,0"});
    } else if (option.name != "model") {
      words.push_back(option.name);
      if (value.is_array())
        for (const Json& element : value) {
          if (element.is_string() && element != value.front()) words.push_back(option.name);
          words.push_back(typed(element));
        }
      else if (!value.is_boolean())
        words.push_back(typed(value));
    }
  }
  words.insert(words.begin(), "mlp");
  const Line line(words);
  const Json parsed = line.typed;
  for (const auto& [key, value] : all_changed().items()) EXPECT_EQ(parsed[key], value) << key;
  EXPECT_EQ(Json(Line(as_typed(line.parser, line.typed)).typed), parsed);
  // A resumed run gets all of them but --out, which is refused.
  std::erase(words, "--out");
  std::erase(words, "run");
  const Line resuming(words);
  Json merged_options = merged(resuming.parser, resuming.typed, {}, {});
  merged_options["out"] = "run";
  EXPECT_EQ(merged_options, parsed);
}

TEST(OptionTable, TakesBackTheFlagsOfARun) {
  RunOptions own = read(all_changed());
  const Line line({"--no-nesterov", "--no-sync-bn", "--no-exact-math", "--no-deterministic",
                   "--no-autotune", "--graph", "--no-profile-counters", "--keep-best",
                   "--no-tensorboard"});
  const Json now = merged(line.parser, line.typed, own, {}), defaults = RunOptions();
  for (const auto& [key, value] : defaults.items())
    EXPECT_EQ(now[key], value.is_boolean() ? value : all_changed()[key]) << key;
  EXPECT_EQ(Line(as_typed(line.parser, line.typed)).parser.given(), line.parser.given());
}

TEST(OptionTable, MergesTheSettingsOfAModelOneByOne) {
  RunOptions own;
  own.model = "gpt2-nano";
  own.model_option = {"layers=2", "heads=3"};
  const auto merged_with = [&](const char* setting) {
    const Line line({"--model-option", setting});
    return merged(line.parser, line.typed, own, {});
  };
  using testing::ElementsAre;
  EXPECT_THAT(merged_with("layers=5").model_option, ElementsAre("heads=3", "layers=5"));
  EXPECT_THAT(merged_with("width=48").model_option, ElementsAre("layers=2", "heads=3", "width=48"));
  EXPECT_TRUE(changes(own, merged_with("layers=2")).empty());
  EXPECT_EQ(changes(own, merged_with("layers=5")).size(), 1U);
}

TEST(OptionTable, RefusesOptionsThatCannotBeMerged) {
  const Line out({"--out", "x"});
  EXPECT_THAT([&] { merged(out.parser, out.typed, {}, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("--out does not go with --resume")));
  const Parser other;
  bool flag = false;
  other.add({.name = "--other", .variable = &flag, .help = "not an option of a run"});
  other.parse({"--other"});
  EXPECT_THAT([&] { merged(other, {}, {}, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("--other cannot change")));
  EXPECT_NO_THROW(merged(other, {}, {}, {"--other"}));
}

TEST(OptionTable, KnowsWhatMayChangeInARun) {
  RunOptions before, now;
  before.model = now.model = "mlp";
  before.shuffle = "window";
  now.shuffle = "window:8192";
  EXPECT_TRUE(changes(before, now).empty()) << "the same window";
  now.epochs = 5;
  now.shuffle = "none";
  now.optimizer = "sgd";
  std::vector<std::string> found;
  for (const OptionChange& change : changes(before, now))
    found.push_back(change.option + ", before " + change.before +
                    (change.resume == Resume::never    ? ": never"
                     : change.resume == Resume::always ? ": always"
                                                       : ": at the end of an epoch"));
  EXPECT_THAT(found, testing::UnorderedElementsAre(
                         "--shuffle none, before window: at the end of an epoch",
                         "--epochs 5, before 1: always", "--optimizer sgd, before adam: never"));
}

// The options that the line of docs/training.md with these words names.
std::set<std::string> documented(const std::string& words) {
  std::ifstream docs(std::filesystem::path(__FILE__).parent_path() / "../../docs/training.md");
  std::set<std::string> names;
  for (std::string line; std::getline(docs, line);) {
    if (line.find(words) == std::string::npos) continue;
    const std::regex name("`(--[a-z-]+)`");
    for (std::sregex_iterator at(line.begin(), line.end(), name), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  return names;
}

TEST(OptionTable, ChangesWithAResumeAsDocumented) {
  std::map<Resume, std::set<std::string>> by_rule;
  for (const OptionGroup& group : option_table())
    for (const OptionRow& row : group.rows)
      if (row.option.name != "model") by_rule[row.resume].insert(row.option.name);
  EXPECT_EQ(by_rule[Resume::never], documented("cannot change, and a run"));
  EXPECT_EQ(by_rule[Resume::at_epoch_end], documented("only at the end of an epoch."));
  EXPECT_THAT(by_rule[Resume::refused], testing::ElementsAre("--out"));
}

TEST(OptionTable, IsDocumented) {
  std::ostringstream all;
  const auto docs = std::filesystem::path(__FILE__).parent_path() / "../../docs";
  for (const auto& entry : std::filesystem::directory_iterator(docs))
    if (entry.path().extension() == ".md") all << std::ifstream(entry.path()).rdbuf() << ' ';
  const std::string text = all.str();
  ASSERT_THAT(text, HasSubstr("# Train, stop, resume, evaluate"));
  for (const OptionName& option : option_names()) {
    // "--lr" within "--lr-schedule" does not count.
    bool named = false;
    for (std::size_t at = text.find(option.name); at != std::string::npos && !named;
         at = text.find(option.name, at + 1)) {
      const char next = text[at + option.name.size()];
      named = !(std::isalnum(static_cast<unsigned char>(next)) || next == '-');
    }
    EXPECT_TRUE(named) << option.name << ": describe it in docs/";
  }
}

TEST(OptionTable, HelpFitsInto100Columns) {
  std::istringstream lines(transforms_help() +
                           help_row("--a-long-name ONE|TWO|THREE",
                                    std::string("many words and more words that do not fit into "
                                                "one line of the terminal, so that they are "
                                                "wrapped at its end")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

// Options that other parts of the program check later.
TEST(StoredOptions, RefuseABrokenDevice) {
  EXPECT_THAT(refusal({{"device", "gpu"}}),
              AllOf(HasSubstr("run/c.safetensors: "), HasSubstr("'device'"),
                    HasSubstr("no backend is called 'gpu'"), HasSubstr("give --device")));
  EXPECT_THAT(refusal({{"device", "cuda:x"}}), HasSubstr("'device'"));
}

TEST(StoredOptions, RefuseABrokenRank) {
  EXPECT_THAT(refusal({{"profile_rank", "first"}}),
              AllOf(HasSubstr("run/c.safetensors: "), HasSubstr("'profile_rank'"),
                    HasSubstr("give --profile-rank")));
}

TEST(StoredOptions, RefuseAMeanWithoutAStandardDeviation) {
  EXPECT_THAT(refusal({{"mean", {0.5, 0.5, 0.5}}}),
              AllOf(HasSubstr("run/c.safetensors: "), HasSubstr("'mean' has length 3"),
                    HasSubstr("'std'"), HasSubstr("give --mean and --std")));
}

TEST(StoredOptions, RefuseAStandardDeviationOf0) {
  EXPECT_THAT(refusal({{"mean", {0.5}}, {"std", {0}}}),
              AllOf(HasSubstr("run/c.safetensors: "), HasSubstr("'std'"),
                    HasSubstr("'0' is not a number above 0")));
}

TEST(StoredOptions, RefuseAMeanOfOtherChannels) {
  const Line line;
  const auto read_with = [&](const std::string& shape) {
    const Json options{{"mean", {0.5, 0.5}}, {"std", {1.0, 1.0}}};
    stored_options({{"options", options}, {"data", {{"image_shape", shape}}}}, "c", line.parser,
                   line.typed);
  };
  EXPECT_NO_THROW(read_with("32x32x2"));
  EXPECT_NO_THROW(read_with("unknown"));
  EXPECT_THAT([&] { read_with("32x32x3"); },
              testing::ThrowsMessage<DataError>(
                  AllOf(HasSubstr("c: "), HasSubstr("'mean'"), HasSubstr("have 3 channels"))));
}

TEST(LocateData, TakesTheFolderOfTheRunFromAnyPlace) {
  const data::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "set");
  const Json config{{"data", {{"folder", folder / "set"}}}};
  RunOptions options;
  options.data = "set";
  locate_data(config, "c", Line().parser, options);
  EXPECT_EQ(options.data, folder / "set");
  options.data = "set";
  locate_data(config, "c", Line({"--data", "set"}).parser, options);
  EXPECT_EQ(options.data, "set") << "the command line wins";
  std::filesystem::remove(folder / "set");
  EXPECT_THAT([&] { locate_data(config, "c", Line().parser, options); },
              testing::ThrowsMessage<DataError>(
                  AllOf(HasSubstr(folder / "set: there is no such folder"), HasSubstr("--data"))));
  options.data = folder.path();
  locate_data(Json{{"data", 7}}, "c", Line().parser, options);
  EXPECT_EQ(options.data, folder.path()) << "of a run that did not keep it";
}

}  // namespace
}  // namespace warpstep::tools
