#include "kernels/cuda/plan_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/core/file.h"

namespace warpstep::cuda {
namespace {

constexpr std::string_view library = "cuDNN 9.19.0", subject = "forward(1,2,3)p1s1d1";
// A plan is any bytes, line ends and zeros among them.
constexpr std::string_view plan = {"engine 41\n{\"a\":\0 1}\n", 21}, other_plan = "engine 7\n{}";

class PlanCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    settings_.cache =
        std::filesystem::path(testing::TempDir()) / (std::string("plan_cache_") + test->name());
    std::filesystem::remove_all(settings_.cache);
    settings_.device_name = "NVIDIA H200";
    settings_.multiprocessors = 132;
    settings_.compute_capability = 90;
  }
  void TearDown() override { std::filesystem::remove_all(settings_.cache); }

  PlanCache open() const { return open(settings_); }
  static PlanCache open(const Settings& settings) { return PlanCache(settings, library); }
  std::filesystem::path kept_file() {
    PlanCache cache = open();
    cache.keep(subject, plan);
    return cache.file(subject, Choice::heuristic);
  }

  Settings settings_;
};

TEST_F(PlanCacheTest, WhatOneProcessKeepsAnotherFindsByteForByte) {
  EXPECT_EQ(open().find(subject), std::nullopt);
  open().keep(subject, plan);
  EXPECT_EQ(open().find(subject), plan);
  EXPECT_EQ(open().find("forward(1,2,3)p1s2d1"), std::nullopt);
  open().keep(subject, other_plan);
  EXPECT_EQ(open().find(subject), other_plan);
}

TEST_F(PlanCacheTest, PlansOfAnotherDeviceLibraryOrSettingAreNotFound) {
  open().keep(subject, plan);
  std::vector<Settings> others(9, settings_);
  others[0].device_name = "NVIDIA H100";
  others[1].multiprocessors = 114;
  others[2].compute_capability = 100;
  others[3].tf32 = true;
  others[4].exact_math = true;
  others[5].deterministic = true;
  others[6].workspace_cap = 0;
  others[7].autotune = true;
  others[8].assumed = "sm_90";
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(open(others[i]).find(subject), std::nullopt) << i;
  }
  EXPECT_EQ(PlanCache(settings_, "cuDNN 9.20.0").find(subject), std::nullopt);
}

TEST_F(PlanCacheTest, AMeasuredChoiceServesHeuristicRunsAndIsNeverReplacedByTheirs) {
  Settings tuned = settings_;
  tuned.autotune = true;
  open().keep(subject, other_plan);
  open(tuned).keep(subject, plan);
  EXPECT_EQ(open().find(subject), plan);
  open().keep(subject, other_plan);
  EXPECT_EQ(open().find(subject), plan);
  EXPECT_EQ(open(tuned).find(subject), plan);
}

TEST_F(PlanCacheTest, WhatCouldNotBeMeasuredIsMeasuredByAnotherRun) {
  Settings tuned = settings_;
  tuned.autotune = true;
  PlanCache cache = open(tuned);
  cache.keep_unmeasured(subject, plan);
  EXPECT_EQ(cache.find(subject), plan);  // for equal layers
  EXPECT_EQ(open(tuned).find(subject), std::nullopt);
  EXPECT_EQ(open().find(subject), plan);
}

TEST_F(PlanCacheTest, WithoutADeviceNothingIsMeasured) {
  settings_.assumed = "sm_90";
  settings_.autotune = true;
  open().keep(subject, plan);
  settings_.autotune = false;
  EXPECT_TRUE(std::filesystem::exists(open().file(subject, Choice::heuristic)));
  EXPECT_FALSE(std::filesystem::exists(open().file(subject, Choice::measured)));
}

TEST_F(PlanCacheTest, EveryTruncationAndEveryFlippedByteIsNoPlan) {
  const std::filesystem::path file = kept_file();
  const std::string whole = read_file(file);
  const auto with = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    return open().find(subject);
  };
  ASSERT_EQ(with(whole), plan);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(with(whole.substr(0, bytes)), std::nullopt) << bytes;
    std::string damaged = whole;
    damaged[bytes] = static_cast<char>(damaged[bytes] ^ 1);
    EXPECT_EQ(with(damaged), std::nullopt) << bytes;
  }
  EXPECT_EQ(with(whole + "x"), std::nullopt);
}

TEST_F(PlanCacheTest, AFileOfAnotherKeyUnderThisNameIsNoPlan) {
  const std::filesystem::path file = kept_file();
  std::filesystem::rename(file, open().file("another", Choice::heuristic));
  EXPECT_EQ(open().find("another"), std::nullopt);
}

TEST_F(PlanCacheTest, AFolderThatCannotBeMadeKeepsInMemoryAlone) {
  std::filesystem::create_directories(settings_.cache.parent_path());
  std::ofstream(settings_.cache) << "a file where the folder should be";
  PlanCache cache = open();
  cache.keep(subject, plan);
  EXPECT_EQ(cache.find(subject), plan);
  EXPECT_EQ(open().find(subject), std::nullopt);
}

TEST_F(PlanCacheTest, AFolderThatOthersMayWriteToIsNotUsed) {
  using std::filesystem::perms;
  open().keep(subject, plan);
  ASSERT_EQ(open().find(subject), plan);
  EXPECT_EQ(std::filesystem::status(settings_.cache).permissions(), perms(0700));
  for (const unsigned mode : {0770U, 0702U, 01777U}) {
    std::filesystem::permissions(settings_.cache, perms(mode));
    EXPECT_EQ(open().find(subject), std::nullopt) << std::oct << mode;
    open().keep("another", plan);
    EXPECT_FALSE(std::filesystem::exists(open().file("another", Choice::heuristic)));
  }
  std::filesystem::permissions(settings_.cache, perms(0755));
  EXPECT_EQ(open().find(subject), plan);
}

TEST_F(PlanCacheTest, NoLinkIsFollowed) {
  const std::filesystem::path file = kept_file(), moved = file.string() + "_moved";
  const std::filesystem::path real = settings_.cache, link = real.string() + "_link";
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink(real, link);
  settings_.cache = link;
  EXPECT_EQ(open().find(subject), std::nullopt);
  std::filesystem::remove(link);
  settings_.cache = real;
  EXPECT_EQ(open().find(subject), plan);
  std::filesystem::rename(file, moved);
  std::filesystem::create_symlink(moved, file);
  EXPECT_EQ(open().find(subject), std::nullopt);
}

TEST_F(PlanCacheTest, AFileThatOthersMayWriteToIsNoPlan) {
  const std::filesystem::path file = kept_file();
  std::filesystem::permissions(file, std::filesystem::perms(0666));
  EXPECT_EQ(open().find(subject), std::nullopt);
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  EXPECT_EQ(open().find(subject), plan);
}

TEST_F(PlanCacheTest, AFileThatOthersOwnIsNoPlan) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  const std::filesystem::path file = kept_file();
  ASSERT_EQ(open().find(subject), plan);
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_EQ(open().find(subject), std::nullopt);
}

TEST_F(PlanCacheTest, WithoutAFolderPlansAreKeptInMemoryAlone) {
  settings_.cache.clear();
  PlanCache cache = open();
  cache.keep(subject, plan);
  EXPECT_EQ(cache.find(subject), plan);
  EXPECT_EQ(open().find(subject), std::nullopt);
}

}  // namespace
}  // namespace warpstep::cuda
