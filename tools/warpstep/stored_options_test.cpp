#include "tools/warpstep/stored_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>

#include "engine/core/error.h"
#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

// A command line with these words, and what it typed.
struct Line {
  CLI::App app;
  RunOptions typed;
  explicit Line(std::vector<std::string> words = {}) {
    declare_run_options(app, typed);
    std::ranges::reverse(words);
    app.parse(std::move(words));
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
  options.ema = 0.99;
  return options;
}

RunOptions read(const Json& options, const Line& line = Line()) {
  return stored_options({{"options", options}}, "run/c.safetensors", line.app, line.typed);
}

std::string refusal(const Json& options) try {
  static const Line line;
  const Json taken = read(options, line);
  // What was taken is what stood there: nothing was cut, rounded or wrapped round.
  for (const auto& [key, value] : options.items()) EXPECT_EQ(taken[key], value) << key;
  return {};
} catch (const DataError& error) {
  return error.what();
}

TEST(StoredOptions, AreReadAsTheyWereWritten) {
  EXPECT_EQ(Json(read(stored())), stored());
  EXPECT_EQ(Json(read(Json(RunOptions()))), Json(RunOptions()));
  EXPECT_EQ(Json(read(Json::object())), Json(RunOptions())) << "older runs had fewer";
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
  EXPECT_THAT(with("accumulate", 0), AllOf(HasSubstr("'0' is not a whole number from 1 on"),
                                           HasSubstr("give --accumulate on the command line")));
  for (const Json& broken : {Json(), Json(7), Json({{"options", 7}}), Json::object()})
    EXPECT_THROW(stored_options(broken, "f", Line().app, {}), DataError);
}

TEST(StoredOptions, MayBeReplacedOnTheCommandLine) {
  Json broken = stored();
  broken["accumulate"] = 0;
  broken["batch"] = "x";
  const Line line({"--accumulate", "4", "--batch", "16", "--lr", "0.5"});
  const RunOptions own = read(broken, line);
  EXPECT_EQ(own.accumulate, 4);
  EXPECT_EQ(own.lr, 0.1 + 0.2) << "the run's own, as it can be used";
  const RunOptions now = overridden(line.app, line.typed, own);
  EXPECT_EQ(now.lr, 0.5);
  EXPECT_EQ(now.ema, 0.99);
}

TEST(LocateData, TakesTheFolderOfTheRunFromAnyPlace) {
  const data::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "set");
  const Json config{{"data", {{"folder", folder / "set"}}}};
  RunOptions options;
  options.data = "set";
  locate_data(config, "c", Line().app, options);
  EXPECT_EQ(options.data, folder / "set");
  options.data = "set";
  locate_data(config, "c", Line({"--data", "set"}).app, options);
  EXPECT_EQ(options.data, "set") << "the command line wins";
  std::filesystem::remove(folder / "set");
  EXPECT_THAT([&] { locate_data(config, "c", Line().app, options); },
              testing::ThrowsMessage<DataError>(
                  AllOf(HasSubstr(folder / "set: there is no such folder"), HasSubstr("--data"))));
  options.data = folder.path();
  locate_data(Json{{"data", 7}}, "c", Line().app, options);
  EXPECT_EQ(options.data, folder.path()) << "of a run that did not keep it";
}

}  // namespace
}  // namespace warpstep::tools
