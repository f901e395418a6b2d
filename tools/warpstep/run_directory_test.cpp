#include "tools/warpstep/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;
using data::testing::put;
using data::testing::TemporaryFolder;

TEST(RunDirectory, OverwritesAllThatARunWroteAndNothingElse) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  for (const std::string_view format : export_folder::all)
    for (const std::string place : {"/trace/", "/trace/session-2/", "/ranks/1/trace/"})
      put(run + place + std::string(format) + "/x", std::string("old"));
  for (const char* name :
       {"/session.prof", "/session-2.prof", "/config.json", "/best.safetensors", "/metrics.jsonl",
        "/best.safetensors.old", "/best.safetensors.old-2", "/tokenizer.json",
        "/ranks/1/session.prof", "/ranks/1/config.json", "/ranks/2/config.json"})
    put(run + name, std::string("old"));
  for (const char* name : {"/notes.txt", "/trace/mine.json", "/ranks/1/notes.txt"})
    put(run + name, std::string("a user's"));
  RunDirectory::create(run, true);
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(run))
    if (entry.is_regular_file()) left.push_back(entry.path().string().substr(run.size()));
  EXPECT_THAT(left, testing::UnorderedElementsAre("/metrics.jsonl", "/notes.txt",
                                                  "/trace/mine.json", "/ranks/1/notes.txt"));
  EXPECT_FALSE(fs::exists(run + "/ranks/2"));
  // A folder of a model of transformers, given by mistake.
  for (const char* name : {"model/config.json", "model/tokenizer.json"})
    put(folder / name, std::string("a user's"));
  RunDirectory::create(folder / "model", true);
  EXPECT_TRUE(fs::exists(folder / "model/tokenizer.json"));
  put(folder / "model/config.json", std::string(R"({"architectures": ["GPT2LMHeadModel"]})"));
  fs::remove(folder / "model/metrics.jsonl");
  for (const bool overwrite : {false, true})
    EXPECT_THAT([&] { RunDirectory::create(folder / "model", overwrite); },
                testing::ThrowsMessage<UsageError>(
                    testing::HasSubstr("has a config.json that is not of a run")));
  EXPECT_TRUE(fs::exists(folder / "model/config.json"));
}

// Thousands would be listed after each of them.
TEST(RunDirectory, DoesNotListCheckpointsOfWhichAllAreKept) {
  const TemporaryFolder folder;
  const RunDirectory run = RunDirectory::create(folder / "run", false);
  put(folder / "run/checkpoint-00000001.safetensors", std::string("1"));
  put(folder / "run/checkpoint-00000002.safetensors", std::string("2"));
  run.prune_checkpoints(1);
  EXPECT_FALSE(fs::exists(folder / "run/checkpoint-00000001.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "run/checkpoint-00000002.safetensors"));
  fs::rename(folder / "run", folder / "elsewhere");
  EXPECT_NO_THROW(run.prune_checkpoints(0));
}

TEST(RunDirectory, OverwritesLinksAndNotWhatTheyLeadTo) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", other = folder / "other";
  const std::string events = "/events.out.tfevents.5.host.1.0";
  for (const std::string& name :
       {std::string("/config.json"), std::string("/metrics.jsonl"), std::string("/session.prof"),
        std::string("/kineto/x"), "/tensorboard" + events, "/system" + events,
        "/tensorboard/system" + events, std::string("/trace/kineto/x"),
        std::string("/ranks/1/config.json")})
    put(other + name, std::string("another run's"));
  using Links = std::vector<std::pair<std::string, std::string>>;
  for (const Links& links :
       {Links{{"/ranks", "/ranks"}, {"/trace", "/trace"}, {"/tensorboard", "/tensorboard"}},
        Links{{"/ranks/1", ""},
              {"/trace/kineto", "/trace/kineto"},
              {"/trace/session-2", "/trace"},
              {"/tensorboard/system", "/system"}}}) {
    put(run + "/config.json", std::string("old"));
    for (const auto& [link, target] : links) {
      fs::create_directories(fs::path(run + link).parent_path());
      fs::create_directory_symlink(other + target, run + link);
    }
    RunDirectory::create(run, true);
    EXPECT_EQ(std::distance(fs::directory_iterator(run), {}), 1) << "metrics.jsonl";
    std::size_t left = 0;
    for (const auto& entry : fs::recursive_directory_iterator(other)) left += !entry.is_directory();
    EXPECT_EQ(left, 9U) << "after a link in place of " << links.front().first;
  }
}

std::string refusal(const std::string& folder, bool overwrite) try {
  RunDirectory::create(folder, overwrite);
  return "none";
} catch (const UsageError& error) {
  return error.what();
}

TEST(RunDirectory, OverwritesNoFilesWhereThereIsNoRun) {
  const TemporaryFolder folder;
  for (const char* name :
       {"report.html", "summary.json", "curves.png", "tokenizer.json", "session.prof",
        "checkpoint-00000004.safetensors", "best.safetensors", "trace/kineto/x.json",
        "tensorboard/events.out.tfevents.5.host.1.0", "ranks/1/config.json"}) {
    const std::string mine = folder / "mine", file = mine + "/" + name;
    put(file, std::string("a user's"));
    for (const bool overwrite : {false, true}) {
      const std::string text = refusal(mine, overwrite);
      const std::string first = name, colliding = first.substr(0, first.find('/'));
      EXPECT_THAT(text, testing::HasSubstr("has files named like those of a run: " + colliding));
      EXPECT_THAT(text, testing::HasSubstr("choose another --out, or move it away"));
      EXPECT_THAT(text, testing::Not(testing::HasSubstr("--overwrite")));
    }
    EXPECT_TRUE(fs::exists(file)) << name;
    EXPECT_FALSE(fs::exists(mine + "/metrics.jsonl")) << name;
    fs::remove_all(mine);
  }
  const std::string other = folder / "other";
  for (const char* name : {"/notes.txt", "/trace/mine.json", "/.summary.json.tmp-7-1"})
    put(other + name, std::string("x"));
  EXPECT_THAT(refusal(other, false), testing::HasSubstr("or --overwrite to write the run's"));
  EXPECT_EQ(refusal(other, true), "none");
  EXPECT_TRUE(fs::exists(other + "/notes.txt") && fs::exists(other + "/trace/mine.json"));
  EXPECT_FALSE(fs::exists(other + "/.summary.json.tmp-7-1")) << "of a process that was killed";
}

TEST(DefaultOut, IsOfOneProcessAloneAndGoesIfNothingIsWritten) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  std::string used, unused;
  {
    const DefaultOut first("mlp"), second("mlp");
    used = first.path();
    unused = second.path();
    EXPECT_NE(used, unused);
    EXPECT_TRUE(used.starts_with("runs/mlp-"));
    EXPECT_TRUE(fs::is_directory(used) && fs::is_directory(unused));
    put(used + "/config.json", std::string("{}"));
  }
  EXPECT_TRUE(fs::exists(used));
  EXPECT_FALSE(fs::exists(unused));
  fs::remove_all("runs");
  { const DefaultOut unused_too("mlp"); }
  EXPECT_FALSE(fs::exists("runs"));
  put(folder / "runs", std::string("a file"));
  EXPECT_THAT([] { DefaultOut("mlp"); },
              testing::ThrowsMessage<DataError>(testing::HasSubstr("choose another with --out")));
  fs::current_path(before);
}

}  // namespace
}  // namespace warpstep::tools
