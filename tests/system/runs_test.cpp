// What comes after training: finding a run and using its model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <tuple>

#include "engine/core/cpus.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST(Models, AreListedWithTheirSizes) {
  const Ended ended = run({"models"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, AllOf(testing::ContainsRegex("cifar10cnn +4,311,754 +32x32x3 +0.0001"),
                               testing::ContainsRegex("gpt2 +124,439,808 +1024 tokens"),
                               HasSubstr("gpt2-nano: --model-option NAME=VALUE with")));
  const Json json = Json::parse(run({"models", "--json"}).out);
  EXPECT_EQ(json[0]["parameters"], 4311754);
}

TEST(Models, OfAPluginMayNameNoSize) {
  const std::string plugin = module_path("no_context");
  const Ended listed = run({"models", "--plugin", plugin});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(testing::ContainsRegex("cifar10cnn +4,311,754 +32x32x3"),
                                testing::ContainsRegex("no-context +- +- +0.001"),
                                testing::ContainsRegex("no-size +- +- +0.001")));
  const Json json = Json::parse(run({"models", "--json", "--plugin", plugin}).out);
  EXPECT_EQ(json.back()["name"], "no-size");
  EXPECT_TRUE(json.back()["parameters"].is_null() && json.back()["input"].is_null());
  const std::vector<std::string> explain{"explain", "no-size",  "--plugin",
                                         plugin,    "--device", "cpu"};
  const Ended refused = run(explain);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("no-size: the model has no default image size; give one: "
                                     "--image PIXELS"));
  EXPECT_EQ(run(with(explain, "--image", "12")).exit_code, 0);
}

TEST(Models, OfAPluginAreListedAndExplained) {
  const std::string plugin = module_path("own");
  EXPECT_THAT(run({"models", "--plugin", plugin}).out,
              testing::ContainsRegex("two-convolutions +[0-9,]+ +12x12x1 +0.003"));
  const Ended ended = run({"explain", "two-convolutions", "--plugin", plugin, "--device", "cpu"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

class Runs : public testing::Test {
 protected:
  void SetUp() override {
    make_set(data_);
    for (const char* lr : {"1e-2", "1e-3"}) {
      auto arguments = short_run(data_, folder_ / "runs/lr" + lr);
      *std::find(arguments.begin(), arguments.end(), "1e-3") = lr;
      const Ended ended = run(arguments);
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
    }
  }
  TemporaryFolder folder_;
  std::string data_ = folder_ / "data";
};

TEST_F(Runs, AreNotFoldersOfData) {
  for (const char* command : {"eval", "report"}) {
    const Ended ended = run({command, data_});
    EXPECT_EQ(ended.exit_code, 1) << command;
    EXPECT_THAT(ended.err, HasSubstr(data_ + ": is not a run directory: it has no ")) << command;
  }
  EXPECT_THAT(run({"train", "--resume", data_}).err, HasSubstr("is not a run directory"));
  EXPECT_THAT(run({"eval"}).err, HasSubstr("run is missing: run directory, or a checkpoint"));
}

TEST_F(Runs, AreListedBesideWhatCannotBeRead) {
  const std::string runs = folder_ / "runs", metrics = runs + "/lr1e-3/metrics.jsonl";
  fs::create_directories(runs + "/loop");  // as a private folder, also for root
  fs::create_symlink("config.json", runs + "/loop/config.json");
  fs::create_directories(runs + "/unreadable/config.json");
  put(runs + "/unreadable/metrics.jsonl", std::string());
  put(runs + "/damaged/config.json", std::string("{"));
  put(runs + "/damaged/metrics.jsonl", std::string());
  fs::remove(metrics);
  ASSERT_EQ(::mkfifo(metrics.c_str(), 0600), 0);
  const Ended ended = run({"runs", runs, "--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(Json::parse(ended.out).size(), 2U);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr(metrics + ": cannot read as a file"),
                    HasSubstr(runs + "/unreadable/config.json: cannot read as a file: Is a "
                                     "directory; left out"),
                    Not(HasSubstr(runs + "/unreadable: its config.json is damaged")),
                    HasSubstr(runs + "/damaged: its config.json is damaged; left out")));
}

TEST_F(Runs, AreATableOfWhatDiffers) {
  const std::string runs = folder_ / "runs";
  const Json all = Json::parse(run({"runs", runs, "--json", "--sort", "lr"}).out);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["settings"], Json({{"lr", 1e-3}}));
  EXPECT_EQ(all[1]["settings"], Json({{"lr", 1e-2}}));
  for (const Json& one : all) {
    const Json summary = read_json(one["run"].get<std::string>() + "/summary.json");
    EXPECT_EQ(one["best"]["accuracy"], summary["best"]["accuracy"]);
    EXPECT_EQ(one["steps"], summary["steps"]);
    EXPECT_GE(one["seconds"].get<double>(), 0);
  }
  EXPECT_EQ(Json::parse(run({"runs", runs, "--json", "--filter", "lr=0.010"}).out).size(), 1U);
  // Steps after the last line of metrics.jsonl are in the summary only.
  Json summary = read_json(runs + "/lr1e-2/summary.json");
  summary["steps"] = 999;
  put(runs + "/lr1e-2/summary.json", summary.dump());
  EXPECT_EQ(Json::parse(run({"runs", runs, "--json", "--filter", "lr=0.01"}).out)[0]["steps"], 999);
  std::filesystem::remove(runs + "/lr1e-3/summary.json");  // it still trains, or was killed
  EXPECT_THAT(run({"runs", runs, "--sort", "lr", "--filter", "lr=0.001"}).out,
              HasSubstr("no summary"));
  EXPECT_THAT(run({"runs", runs, "--csv"}).out,
              AllOf(HasSubstr("run,model,data,lr,accuracy,loss,steps,seconds,outcome\r\n"),
                    HasSubstr(",finished\r\n")));
  EXPECT_THAT(run({"runs", runs}).out, testing::ContainsRegex("run +model +data +lr +best"));
  EXPECT_THAT(run({"runs", runs, "--sort", "learning"}).err,
              HasSubstr("--sort: no column or option is called 'learning'"));
  EXPECT_EQ(
      Json::parse(
          run({"runs", runs, "--json", "--filter", "betas=[0.9,0.999]", "--filter", "lr=0.01"}).out)
          .size(),
      1U);
}

// A process that resumes the run writes config.json as it begins; the summary is not its own then.
TEST_F(Runs, HaveASummaryOfTheirLastProcessAlone) {
  const fs::path resumed = folder_ / "runs/lr1e-2";
  const auto found = [&] { return Json::parse(run({"runs", resumed, "--json"}).out)[0]; };
  Json summary = read_json(resumed / "summary.json"), config = read_json(resumed / "config.json");
  EXPECT_EQ(summary["started"], config["started"]);
  // Copied, config.json last.
  const auto later = fs::last_write_time(resumed / "summary.json") + std::chrono::seconds(1);
  fs::last_write_time(resumed / "config.json", later);
  EXPECT_EQ(found()["outcome"], "finished");
  summary["steps"] = 999;
  put(resumed / "summary.json", summary.dump());
  config["started"] = "another";
  put(resumed / "config.json", config.dump());
  fs::last_write_time(resumed / "summary.json", later + std::chrono::seconds(9));
  EXPECT_EQ(found()["outcome"], "no summary");
  EXPECT_EQ(found()["steps"], 12);
  // Of an earlier version: the times of the files tell.
  summary.erase("started");
  put(resumed / "summary.json", summary.dump());
  config.erase("started");
  put(resumed / "config.json", config.dump());
  fs::last_write_time(resumed / "summary.json", later);
  fs::last_write_time(resumed / "config.json", later);
  EXPECT_EQ(found()["outcome"], "finished");
  fs::last_write_time(resumed / "config.json", later + std::chrono::seconds(1));
  EXPECT_EQ(found()["outcome"], "no summary");
}

TEST_F(Runs, MarkTheProcessThatResumedThem) {
  const std::string out = folder_ / "runs/lr1e-2";
  const Json before = read_json(out + "/config.json")["started"];
  ASSERT_EQ(run({"train", "--resume", out, "--epochs", "5"}).exit_code, 0);
  EXPECT_NE(read_json(out + "/config.json")["started"], before);
  EXPECT_EQ(read_json(out + "/config.json")["started"],
            read_json(out + "/summary.json")["started"]);
}

// Seeds beyond 2^53, which doubles do not tell apart.
TEST_F(Runs, HaveLargeWholeNumbersAsTheyAre) {
  const std::string runs = folder_ / "runs";
  const auto set_seed = [&](const std::string& name, std::uint64_t seed) {
    Json config = read_json(runs + name + "/config.json");
    config["options"]["seed"] = seed;
    put(runs + name + "/config.json", config.dump());
  };
  set_seed("/lr1e-2", 9007199254740993);
  set_seed("/lr1e-3", 18446744073709551615U);
  const std::string csv = run({"runs", runs, "--csv"}).out;
  EXPECT_THAT(csv, AllOf(HasSubstr(",9007199254740993,"), HasSubstr(",18446744073709551615,")));
  const auto found = [&](const std::string& filter) {
    return Json::parse(run({"runs", runs, "--json", "--filter", filter}).out).size();
  };
  EXPECT_EQ(found("seed=9007199254740993"), 1U);
  EXPECT_EQ(found("seed=9007199254740992"), 0U);
}

// The columns are the loss of the best evaluation, and the steps that were done.
TEST_F(Runs, HaveColumnsOfTheirOwnForTheOptionsLossAndSteps) {
  const std::string runs = folder_ / "runs", nll = runs + "/nll";
  ASSERT_EQ(run(with(short_run(data_, nll), "--loss", "nll", "--steps", "14")).exit_code, 0);
  const std::string csv = run({"runs", runs, "--csv", "--filter", "lr=1e-3"}).out;
  EXPECT_THAT(csv, HasSubstr("run,model,data,criterion,accuracy,loss,steps,seconds,outcome"));
  EXPECT_THAT(csv, AllOf(HasSubstr(",nll,"), HasSubstr(",cross_entropy,")));
  EXPECT_THAT(run({"runs", runs}).out, testing::ContainsRegex("criterion +lr +best +loss +steps"));
  const auto found = [&](const std::string& filter) {
    return Json::parse(run({"runs", runs, "--json", "--filter", filter}).out).size();
  };
  EXPECT_EQ(found("criterion=nll"), 1U);
  EXPECT_EQ(found("criterion=cross_entropy"), 2U);
  EXPECT_EQ(found("max-steps=14"), 1U);
  EXPECT_EQ(found("steps=14"), 0U) << "its epochs end it earlier";
  EXPECT_EQ(found("steps=12"), 3U);
  const Json sorted = Json::parse(run({"runs", runs, "--json", "--sort", "criterion"}).out);
  EXPECT_EQ(sorted[2]["settings"]["loss"], "nll");
  EXPECT_THAT(run({"runs", runs, "--filter", "loss=nll"}).err,
              HasSubstr("the column 'loss' has numbers; the option --loss is 'criterion' here"));
}

TEST_F(Runs, AreNamedIfTheyAreDamaged) {
  const std::string runs = folder_ / "runs";
  put(runs + "/lr1e-3/config.json", std::string("garbage"));
  const Ended ended = run({"runs", runs});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.err, HasSubstr(runs + "/lr1e-3: its config.json is damaged; left out"));
  EXPECT_THAT(ended.out, HasSubstr("lr1e-2"));
}

TEST_F(Runs, NoteTheNamesOfOtherClasses) {
  const std::string named = folder_ / "named", other = folder_ / "other", out = folder_ / "run";
  for (const std::string& set : {named, other}) {
    fs::copy(data_, set, fs::copy_options::recursive);
    for (const std::string split : {"/train/", "/test/"}) {
      fs::remove(set + split + "labels.pkl");
      std::string table = "name,label\n";
      const int files = split == "/train/" ? 192 : 64;
      for (int i = 0; i < files; ++i) {
        const int label = i * set_classes / files;
        table += fmt::format("{},{}{}\n", file_name(i), label, set == named ? "-dog" : "-cat");
      }
      put(set + split + "labels.csv", table);
    }
  }
  ASSERT_EQ(run(with(short_run(named, out), "--steps", "1")).exit_code, 0);
  const Ended ended = run({"eval", out, "--data", other});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("class 0 is '0-cat', and in the run '0-dog'"));
  EXPECT_THAT(run({"eval", out}).err, Not(HasSubstr("note: ")));
  EXPECT_THAT(run({"data", "info", other, "--val-split", "0.1"}).err,
              HasSubstr("--val-split has no effect"));
  EXPECT_THAT(
      run({"data", "pack", other, folder_ / "packed", "--to", "safetensors", "--shard-mib", "9"})
          .err,
      HasSubstr("--shard-mib has no effect"));
}

TEST_F(Runs, PredictAsTheyEvaluate) {
  const std::string best = folder_ / "runs/lr1e-2";
  const Ended ended = run({"predict", best, data_ + "/train", "--top", "2", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("1 file skipped"));  // labels.pkl
  const Json predictions = Json::parse(ended.out);
  std::int64_t correct = 0;
  for (const Json& one : predictions) {
    const std::string file = one["file"];
    const int index = std::stoi(file.substr(file.rfind('/') + 1));
    correct += std::to_string(index * set_classes / 192) == one["label"];
    EXPECT_EQ(one["top"].size(), 2U);
    EXPECT_GE(one["top"][0]["probability"], one["top"][1]["probability"]);
  }
  const Ended measured = run({"eval", best, "--checkpoint", "best", "--split", "train", "--json"});
  EXPECT_EQ(correct, Json::parse(measured.out)["correct"]);
  const Ended confused =
      run({"eval", best, "--checkpoint", "best", "--split", "train", "--confusion", "--json"});
  const Json test = Json::parse(run({"eval", best, "--json"}).out),
             val = Json::parse(run({"eval", best, "--split", "val", "--json"}).out);
  EXPECT_EQ(val["split"], "val");
  EXPECT_EQ(val["loss"], test["loss"]);
  fs::create_directories(data_ + "/val");
  EXPECT_THAT(run({"eval", best, "--split", "val"}).err, HasSubstr("evaluation reads test/"));
  const std::string note = data_ + " has test/ and val/: evaluations read test/, val/ is left out";
  EXPECT_THAT(run({"eval", best}).err, HasSubstr(note));
  EXPECT_THAT(run({"eval", best, "--split", "train"}).err, Not(HasSubstr(note)));
  std::int64_t images = 0, diagonal = 0;
  const Json matrix = Json::parse(confused.out)["confusion"];
  for (std::size_t i = 0; i < matrix.size(); ++i)
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      images += matrix[i][j].get<std::int64_t>();
      diagonal += i == j ? matrix[i][j].get<std::int64_t>() : 0;
    }
  EXPECT_EQ(images, 192);
  EXPECT_EQ(diagonal, correct);
  EXPECT_THAT(run({"eval", best, "--confusion"}).out,
              testing::ContainsRegex("class +images +correct +0 +1 +2\n0 +22 +[0-9.]+ %"));
  EXPECT_THAT(run({"predict", best, predictions[0]["file"]}).out,
              testing::ContainsRegex("label.*\n.*[.]png +[0-2] +[0-9.]+ %\n"));
  EXPECT_THAT(run({"predict", best, folder_.path() + "/none.png"}).err,
              HasSubstr("none.png: there is no such file or folder"));
}

// Of files that are labelled otherwise than the model was taught: rows are labels, columns guesses.
TEST_F(Runs, TellWhatTheyTakeForWhat) {
  const std::string best = folder_ / "runs/lr1e-2", other = folder_ / "other";
  fs::copy(data_, other, fs::copy_options::recursive);
  const Json guesses = Json::parse(run({"predict", best, other + "/test", "--json"}).out);
  ASSERT_EQ(guesses.size(), 64U);
  std::array<std::array<int, set_classes>, set_classes> expected{};
  data::testing::Labels labels;
  for (const Json& one : guesses) {
    const std::string file = fs::path(one["file"].get<std::string>()).filename();
    const int guess = std::stoi(one["label"].get<std::string>());
    // Of class 0 most are right, some are taken for 1, fewer for 2; class 1 is always taken for 2.
    const int index = std::stoi(file);
    const int label = guess == 2                     ? (index % 7 == 0 ? 0 : 1)
                      : guess == 1 && index % 3 == 0 ? 0
                      : guess == 1                   ? 2
                                                     : 0;
    labels.emplace_back(file, label);
    ++expected.at(idx(label)).at(idx(guess));
  }
  put(other + "/test/labels.pkl", data::write_pickle(labels));
  const Json found = Json::parse(
      run({"eval", best, "--checkpoint", "best", "--data", other, "--confusion", "--json"}).out);
  EXPECT_EQ(found["confusion"], Json(expected));
  EXPECT_GT(expected[0][1], 0);
  std::string table;
  for (int i = 0; i < set_classes; ++i) {
    const auto& row = expected.at(idx(i));
    const int images = row[0] + row[1] + row[2];
    ASSERT_GT(images, 0) << "no image has label " << i;
    table += fmt::format("{} +{} +{:.1f} % +{} +{} +{}\n", i, images,
                         100.0 * row.at(idx(i)) / images, row[0], row[1], row[2]);
  }
  EXPECT_THAT(run({"eval", best, "--checkpoint", "best", "--data", other, "--confusion"}).out,
              testing::ContainsRegex("class +images +correct +0 +1 +2\n" + table));
}

// With more than 20 classes only the pairs most often confused are printed, the first 20.
TEST(Confusion, OfManyClassesIsAList) {
  constexpr std::size_t classes = 21, images = 8;
  const TemporaryFolder folder;
  const std::string data = folder / "data", out = folder / "run";
  for (const char* split : {"/train", "/test"})
    for (std::uint32_t c = 0; c < classes; ++c)
      for (std::uint32_t i = 0; i < images; ++i)
        put(fmt::format("{}{}/class{:02}/{}.png", data, split, c, i),
            data::testing::some_png({8, 8, 3}, c * 131 + i * 17));
  ASSERT_EQ(run(with(short_run(data, out), "--steps", "1")).exit_code, 0);
  const Json matrix = Json::parse(run({"eval", out, "--confusion", "--json"}).out)["confusion"];
  ASSERT_EQ(matrix.size(), classes);
  std::vector<std::tuple<int, std::size_t, std::size_t>> pairs;
  std::string expected = "class    images  correct\n";
  for (std::size_t i = 0; i < classes; ++i) {
    expected += fmt::format("class{:02}       8  {:>7}\n", i,
                            fmt::format("{:.1f} %", 100.0 / images * matrix[i][i].get<int>()));
    for (std::size_t j = 0; j < classes; ++j)
      if (const int count = matrix[i][j]; i != j && count > 0) pairs.emplace_back(-count, i, j);
  }
  ASSERT_GT(pairs.size(), 20U);
  std::ranges::sort(pairs);
  expected += "most often confused:\n";
  for (const auto& [count, i, j] : std::span(pairs).first(20))
    expected += fmt::format("  class{:02} predicted as class{:02}: {}\n", i, j, -count);
  EXPECT_THAT(run({"eval", out, "--confusion"}).out, testing::EndsWith("\n\n" + expected));
}

TEST_F(Runs, PredictTheOtherFilesIfSomeAreBroken) {
  const std::string best = folder_ / "runs/lr1e-2", photos = folder_ / "photos";
  fs::create_directories(photos);
  for (int i = 0; i < 4; ++i)
    fs::copy_file(data_ + "/train/" + file_name(i), photos + fmt::format("/{}.png", i));
  fs::resize_file(photos + "/0.png", 20);  // its header
  fs::resize_file(photos + "/2.png", fs::file_size(photos + "/2.png") - 20);
  const Ended ended = run({"predict", best, photos, "--json"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, testing::ContainsRegex("photos/0.png: .*truncated"));
  EXPECT_THAT(ended.err, testing::ContainsRegex("photos/2.png: .*truncated"));
  EXPECT_THAT(ended.err, HasSubstr("2 of 4 files could not be read, see above; the others"));
  const Json predictions = Json::parse(ended.out),
             whole = Json::parse(
                 run({"predict", best, photos + "/1.png", photos + "/3.png", "--json"}).out);
  EXPECT_EQ(predictions, whole);
  const Ended none = run({"predict", best, photos + "/0.png", photos + "/2.png"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("2 of 2 files could not be read"));
  EXPECT_EQ(none.out, "");
  fs::rename(photos + "/2.png", photos + "/\x1b[31m\n.png");
  const Ended shown = run({"predict", best, photos});
  EXPECT_THAT(shown.err, HasSubstr("photos/?[31m?.png: "));
  EXPECT_THAT(shown.err + shown.out, testing::Not(HasSubstr("\x1b")));
}

TEST_F(Runs, PredictTheOtherFilesIfOneIsMissing) {
  const std::string best = folder_ / "runs/lr1e-2", image = data_ + "/train/" + file_name(1),
                    gone = folder_ / "gone.png";
  const Json whole = Json::parse(run({"predict", best, image, "--json"}).out);
  const Ended ended = run({"predict", best, gone, image, "--json"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(gone + ": there is no such file or folder\n"),
                               HasSubstr("1 of 2 files could not be read, see above; the others")));
  EXPECT_EQ(Json::parse(ended.out), whole);
}

TEST_F(Runs, PredictTheOtherFilesIfALinkLeadsNowhere) {
  const std::string best = folder_ / "runs/lr1e-2", photos = folder_ / "photos";
  fs::create_directories(photos);
  for (int i = 1; i < 3; ++i)
    fs::copy_file(data_ + "/train/" + file_name(i), photos + fmt::format("/{}.png", i));
  const Json whole = Json::parse(run({"predict", best, photos, "--json"}).out);
  ASSERT_EQ(whole.size(), 2U);
  const std::vector<std::string> links{photos + "/0.png", photos + "/3.png"};
  for (const std::string& link : links) fs::create_symlink("gone.png", link);
  fs::create_symlink("gone.txt", photos + "/notes.txt");
  for (const auto& files :
       {std::vector{photos}, {links[0], photos + "/1.png", photos + "/2.png", links[1]}}) {
    std::vector<std::string> arguments{"predict", best};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const Ended ended = run(with(arguments, "--json"));
    EXPECT_EQ(ended.exit_code, 1);
    for (const std::string& link : links)
      EXPECT_THAT(ended.err, HasSubstr(link + ": cannot be read: No such file or directory\n"));
    EXPECT_THAT(ended.err,
                HasSubstr("2 of 4 files could not be read, see above; the others are predicted"));
    EXPECT_EQ(Json::parse(ended.out), whole);
  }
}

// Of the machine that trained.
TEST_F(Runs, PredictOnOtherCpusThanTheyWerePinnedTo) {
  const CpuSet cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU alone";
  const std::string pinned = folder_ / "pinned";
  ASSERT_EQ(run(with(short_run(data_, pinned), "--pin-cpus", std::to_string(cpus[0]))).exit_code,
            0);
  const auto run_on_cpus = [](const CpuSet& set) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : set) CPU_SET(cpu, &mask);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
  };
  run_on_cpus({cpus[1]});
  const Ended ended = run({"predict", pinned, data_ + "/test/" + file_name(0)});
  run_on_cpus(cpus);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST_F(Runs, AreRepeatedFromTheirConfig) {
  const std::string first = folder_ / "runs/lr1e-2", again = folder_ / "again";
  const std::string older = folder_ / "older.json";
  Json config = read_json(first + "/config.json");
  config["options"]["shard_optimizer"] = false;  // a string now
  put(older, config.dump());
  const Ended ended = run({"train", "--config", older, "--out", again, "--log-every", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(tensors(checkpoints(again).back()), tensors(checkpoints(first).back()));
  const Json options = read_json(again + "/config.json")["options"];
  EXPECT_EQ(options["log_every"], 2);
  EXPECT_EQ(options["shard_optimizer"], "off");
  EXPECT_THAT(ended.err, Not(HasSubstr("has no effect"))) << "its defaults were not typed";
  const std::string loaded = folder_ / "loaded";
  ASSERT_EQ(run(with(short_run(data_, loaded), "--weights", first + "/best.safetensors")).exit_code,
            0);
  const Ended with_weights =
      run({"train", "--config", loaded + "/config.json", "--out", again, "--overwrite"});
  EXPECT_EQ(with_weights.exit_code, 0) << with_weights.err;
  EXPECT_EQ(tensors(checkpoints(again).back()), tensors(checkpoints(loaded).back()))
      << "it begins with the same weights";
  put(folder_ / "other.json", std::string("{\"lr\": 1}"));
  EXPECT_THAT(run({"train", "mlp", "--config", folder_ / "other.json"}).err,
              HasSubstr("it is not the config.json of a run"));
}

// What a run resolved was not typed: another model has its own learning rate, other data have their
// own mean.
TEST_F(Runs, AreRepeatedWithWhatWasTyped) {
  const std::string first = folder_ / "first", again = folder_ / "again", other = folder_ / "other";
  const auto options_of = [](const std::vector<std::string>& arguments, const std::string& out) {
    const Ended ended =
        run(with(arguments, "--batch", "32", "--steps", "1", "--out", out, "--overwrite"));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return read_json(out + "/config.json")["options"];
  };
  const std::vector<std::string> begin{"train", "mlp", "--data", data_, "--device", "cpu"};
  const Json options = options_of(begin, first);
  EXPECT_EQ(read_json(first + "/config.json")["measured"], Json({"mean", "std"}));
  make_set(other);
  fs::remove_all(other + "/train");
  fs::copy(other + "/test", other + "/train", fs::copy_options::recursive);
  const std::vector<std::string> config{"train", "--config", first + "/config.json"};
  const Json same = options_of(config, again);
  EXPECT_EQ(same["lr"], options["lr"]);
  EXPECT_EQ(same["mean"], options["mean"]);
  EXPECT_EQ(same["std"], options["std"]);
  EXPECT_EQ(read_json(again + "/config.json")["measured"], Json({"mean", "std"}));
  const Json moved = options_of(with(config, "--data", other, "cifar10cnn"), again);
  EXPECT_EQ(moved["lr"], 1e-4);
  const Json fresh = options_of({"train", "mlp", "--data", other, "--device", "cpu"}, again);
  EXPECT_NE(fresh["mean"], options["mean"]);
  EXPECT_EQ(moved["mean"], fresh["mean"]);
  EXPECT_EQ(moved["std"], fresh["std"]);
  EXPECT_EQ(run({"train", "--resume", again, "--steps", "2"}).exit_code, 0);
  EXPECT_EQ(read_json(again + "/config.json")["measured"], Json({"mean", "std"}));

  options_of(
      with(begin, "--lr", "0.01", "--mean", "0.5", "0.5", "0.5", "--std", "0.2", "0.2", "0.2"),
      first);
  EXPECT_FALSE(read_json(first + "/config.json").contains("measured"));
  const Json typed = options_of(with(config, "--data", other, "cifar10cnn"), again);
  EXPECT_EQ(typed["lr"], 0.01);
  EXPECT_EQ(typed["mean"], Json({0.5, 0.5, 0.5}));
}

TEST_F(Runs, AreRepeatedInAnotherLengthAndAnotherBatch) {
  const std::string shared = folder_ / "shared", again = folder_ / "again";
  std::vector<std::string> arguments = short_run(data_, shared);
  *std::ranges::find(arguments, "--batch") = "--global-batch";
  ASSERT_EQ(run(with(arguments, "--steps", "3")).exit_code, 0);
  const auto repeated = [&](const std::string& option, const std::string& value) {
    const Ended ended = run({"train", "--config", shared + "/config.json", "--out", again,
                             "--overwrite", option, value});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return std::pair(read_json(again + "/summary.json")["steps"].get<int>(),
                     read_json(again + "/config.json")["options"]["batch"].get<int>());
  };
  EXPECT_EQ(repeated("--seed", "0"), std::pair(3, 32));
  EXPECT_EQ(repeated("--steps", "14"), std::pair(14, 32)) << "more than the run's epochs";
  EXPECT_EQ(repeated("--epochs", "1"), std::pair(6, 32)) << "more than the run's steps";
  EXPECT_EQ(repeated("--batch", "16"), std::pair(3, 16));
  EXPECT_EQ(repeated("--global-batch", "16"), std::pair(3, 16));
}

TEST_F(Runs, HaveTheLengthAndTheBatchThatIsTypedWhateverAFileSays) {
  const std::string file = folder_ / "run.toml", out = folder_ / "out";
  put(file, "model = \"mlp\"\ndata = \"" + data_ +
                "\"\ndevice = \"cpu\"\nthreads = 1\nepochs = 1\nsteps = 3\nglobal-batch = 48\n");
  const auto trained = [&](const std::vector<std::string>& typed) {
    std::vector<std::string> arguments{"train", "--config", file, "--out", out, "--overwrite"};
    arguments.insert(arguments.end(), typed.begin(), typed.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return std::pair(read_json(out + "/summary.json")["steps"].get<int>(),
                     read_json(out + "/config.json")["options"]["batch"].get<int>());
  };
  EXPECT_EQ(trained({}), std::pair(3, 48));
  EXPECT_EQ(trained({"--epochs", "2"}), std::pair(8, 48)) << "more than the file's steps";
  EXPECT_EQ(trained({"--steps", "5"}), std::pair(5, 48)) << "more than the file's epochs";
  EXPECT_EQ(trained({"--batch", "32"}), std::pair(3, 32));
  EXPECT_EQ(trained({"--global-batch", "64"}), std::pair(3, 64));
  put(file, std::string("global-batch = 48\n"));
  EXPECT_THAT(run({"eval", folder_ / "runs/lr1e-2", "--batch", "8", "--config", file}).err,
              HasSubstr("unknown key global-batch"));
}

TEST(ValSplit, TrainsAFolderWithoutTestImages) {
  const TemporaryFolder folder;
  const std::string data = folder / "data", out = folder / "run";
  make_set(data);
  EXPECT_THAT(run(with(short_run(data, out), "--val-split", "0.1")).err,
              HasSubstr("--val-split: " + data + " has a test part of its own"));
  std::filesystem::remove_all(data + "/test");
  put(data + "/train/README.md", std::string("x"));
  const Ended ended = run(with(short_run(data, out), "--val-split", "0.1"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("174 training and 18 test images"),
                               HasSubstr("1 file of the training data skipped: README.md")));
  const Json measured = Json::parse(run({"eval", out, "--json"}).out);
  EXPECT_EQ(measured["images"], 18);
  EXPECT_EQ(measured["accuracy"], read_json(out + "/summary.json")["test"]["accuracy"]);
  const std::string copy = folder / "copy", whole = folder / "whole";
  std::filesystem::copy(data, copy, std::filesystem::copy_options::recursive);
  for (const char* option : {"--val-split", "--val-seed"}) {
    const std::string value = option == std::string("--val-split") ? "0.2" : "9";
    for (const std::string& own : {data, copy}) {
      const Ended refused = run({"eval", out, "--data", own, option, value});
      EXPECT_EQ(refused.exit_code, 2);
      EXPECT_THAT(refused.err, HasSubstr(option + (" " + value + ": the run has ")));
    }
    EXPECT_THAT(
        run({"train", "--resume", out, "--epochs", "3", option, value, "--allow-changed-data"}).err,
        AllOf(HasSubstr(option + (" " + value)), HasSubstr("--resume cannot change")));
  }
  make_set(whole);
  EXPECT_THAT(run({"eval", out, "--data", whole, "--val-split", "0.1"}).err,
              HasSubstr("--val-split: " + whole + " has a test part of its own"));
  const std::string fingerprint = read_json(out + "/config.json")["data"]["test_fingerprint"];
  const auto validated = [&](const std::string& option) {
    const std::string other = folder / ("run" + option);
    const Ended trained =
        run(with(short_run(data, other), "--val-split", "0.1", "--steps", "1", option, "7"));
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    return read_json(other + "/config.json")["data"]["test_fingerprint"].get<std::string>();
  };
  EXPECT_EQ(validated("--seed"), fingerprint) << "a sweep over seeds validates on the same images";
  EXPECT_NE(validated("--val-seed"), fingerprint);
}

}  // namespace
}  // namespace warpstep::system_test
