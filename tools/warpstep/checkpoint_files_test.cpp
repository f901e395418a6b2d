#include <gmock/gmock.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/core/file.h"
#include "engine/files/checkpoint.h"
#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "tests/data_testing.h"
#include "tests/small_graphs.h"
#include "tools/warpstep/checkpoint_files.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

TEST(Scored, GoesByAccuracyThenLossThenAge) {
  const Scored a{6, 1, 0.9, 0.4};
  EXPECT_TRUE((Scored{12, 2, 0.91, 0.5}).better_than(a));
  EXPECT_TRUE((Scored{12, 2, 0.9, 0.3}).better_than(a));
  EXPECT_FALSE((Scored{12, 2, 0.9, 0.4}).better_than(a));
  EXPECT_TRUE(a.better_than({12, 2, 0.9, 0.4}));
  EXPECT_FALSE((Scored{12, 2, 0.89, 0.1}).better_than(a));
}

class BestOfRun : public testing::Test {
 protected:
  // As the trainer saves; `correct` of 10 images, below 0: not evaluated.
  fs::path save(std::uint64_t step, std::int64_t correct) {
    progress_ = {.step = step, .next = {step, 0}, .epoch_score = {}, .evaluation = {}};
    if (correct >= 0) progress_.evaluation = EvaluationRecord{step, step, {20, correct, 10}, 0};
    const fs::path path = checkpoint_path(run_, step);
    save_checkpoint(path, program_.store(), Optimizer::Kind::adam, progress_, {"m", "{}"});
    return path;
  }
  std::string best() const { return read_file(run_ / best_name); }

  const data::testing::TemporaryFolder folder_;
  const fs::path run_ = folder_ / "";
  Program program_{compile_step(testing_support::two_branches(), {}), open_backend("ref")};
  Progress progress_;
};

TEST_F(BestOfRun, IsTakenAsItComes) {
  BestCheckpoint kept(run_);
  kept.offer(save(0, 9), progress_);
  EXPECT_FALSE(kept.best()) << "nothing was learnt";
  const fs::path second = save(2, 5);
  kept.offer(second, progress_);
  kept.offer(save(3, -1), progress_);
  kept.offer(save(4, 5), progress_);
  EXPECT_EQ(kept.json()["step"], 2);
  EXPECT_EQ(best(), read_file(second));
  EXPECT_EQ(fs::hard_link_count(second), 2U) << "it takes no room of its own";
  fs::remove(second);
  kept.offer(save(5, 6), progress_);
  EXPECT_EQ(kept.json()["accuracy"], 0.6);
  EXPECT_EQ(BestCheckpoint::reopen(run_, 5, true).json(), kept.json());
  EXPECT_EQ(BestCheckpoint::reopen(run_, 5, false).json(), kept.json());
}

TEST_F(BestOfRun, IsCopiedWhereThereAreNoLinks) {
  // What stands in the link's way cannot be removed.
  const std::string aside = ".best.safetensors.tmp-" + std::to_string(::getpid()) + "-0";
  fs::create_directories(run_ / aside / "full");
  BestCheckpoint kept(run_);
  const fs::path first = save(1, 5);
  kept.offer(first, progress_);
  EXPECT_EQ(fs::hard_link_count(first), 1U);
  EXPECT_EQ(best(), read_file(first));
}

TEST_F(BestOfRun, WaitsWhereTheDiskRefusesIt) {
  fs::create_directories(run_ / best_name / "full");  // which no file can replace
  BestCheckpoint kept(run_);
  const fs::path first = save(1, 5);
  kept.offer(first, progress_);
  EXPECT_EQ(kept.waiting(), first);
  EXPECT_EQ(kept.json()["checkpoint"], first.filename().string());
  for (const auto& entry : fs::directory_iterator(run_))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  fs::remove_all(run_ / best_name);
  kept.offer(save(2, 4), progress_);
  EXPECT_TRUE(kept.waiting().empty());
  EXPECT_EQ(best(), read_file(first));
}

TEST(CheckpointFiles, AreThoseOfTheirNamesAlone) {
  EXPECT_TRUE(is_checkpoint_name("checkpoint-00000012.safetensors"));
  EXPECT_TRUE(is_checkpoint_name("checkpoint-123456789.safetensors"));
  for (const char* name :
       {"checkpoint-zzz.safetensors", "checkpoint-.safetensors", "checkpoint-12.safetensors",
        "checkpoint-000000012.safetensors", "checkpoint--0000012.safetensors",
        "checkpoint-safetensors", "checkpoint-12345678901234567890123.safetensors"})
    EXPECT_FALSE(is_checkpoint_name(name)) << name;
  const data::testing::TemporaryFolder folder;
  for (const std::uint64_t step : {99'999'999U, 7U, 100'000'000U})
    write_atomically(checkpoint_path(folder.path(), step), "x");
  write_atomically(folder / "checkpoint-zzz.safetensors", "x");
  EXPECT_EQ(step_of(newest_checkpoint(folder.path())), 100'000'000U) << "by number, not by text";
}

TEST(CheckpointFiles, OfAJobAreNotInTheFoldersOfItsRanks) {
  const data::testing::TemporaryFolder folder;
  const auto refused = [&](const fs::path& run) {
    fs::create_directories(run);
    write_atomically(run / "config.json", "{}");
    try {
      newest_checkpoint(run);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused(folder / "job"), testing::HasSubstr("--overwrite"));
  const std::string of_rank = refused(folder / "job/ranks/1/");
  EXPECT_THAT(of_rank, testing::HasSubstr("what one rank of a job wrote"));
  EXPECT_THAT(of_rank, testing::HasSubstr(folder / "job"));
}

TEST(CheckpointFiles, AreSetAsideByNamesOfTheirOwn) {
  const data::testing::TemporaryFolder folder;
  const std::string path = folder / "best.safetensors";
  for (const char* end : {".old", ".old-2", ".old-3"}) {
    EXPECT_EQ(free_aside(path), path + end);
    EXPECT_EQ(name_before_aside("best.safetensors" + std::string(end)), "best.safetensors");
    write_atomically(path + end, "x");
  }
  for (const char* name : {"a", "a.old.txt", "a.old-", "a.old2", "a.old-2x", "a.older"})
    EXPECT_EQ(name_before_aside(name), name);
}

TEST_F(BestOfRun, IsFoundAgainAmongTheOthers) {
  save(1, 7);
  save(2, 8);
  save(3, 6);
  EXPECT_EQ(BestCheckpoint::reopen(run_, 3, false).best(), std::nullopt);
  EXPECT_FALSE(fs::exists(run_ / best_name));
  EXPECT_EQ(BestCheckpoint::reopen(run_, 3, true).best()->step, 2U);
  EXPECT_EQ(BestCheckpoint::reopen(run_, 1, true).best()->step, 1U);
  EXPECT_TRUE(fs::exists(run_ / "best.safetensors.old"));
  const std::string set_aside = read_file(run_ / "best.safetensors.old");
  write_atomically(run_ / best_name, "no checkpoint");
  EXPECT_EQ(BestCheckpoint::reopen(run_, 3, true).best()->step, 2U);
  EXPECT_EQ(read_file(run_ / "best.safetensors.old"), set_aside);
  EXPECT_EQ(read_file(run_ / "best.safetensors.old-2"), "no checkpoint");
}

}  // namespace
}  // namespace warpstep::tools
