#include "tools/warpstep/tensorboard.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/file.h"
#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EventFile, AFullDiskCostsOnlyTheCurves) {
  ::testing::internal::CaptureStderr();
  {
    EventFile file("/dev/full");
    file.append("record");
    EXPECT_EQ(file.lost(), 2U) << "the version and the record";
  }
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("/dev/full: cannot write: No space left on device; the run continues"),
            HasSubstr("2 records could not be written")));
}

class EventFiles : public ::testing::Test {
 protected:
  const data::testing::TemporaryFolder folder_;
  const fs::path run_ = folder_ / "run";
  const fs::path board_ = run_ / "tensorboard";
};

TEST_F(EventFiles, AFileInPlaceOfTheFolderCostsOnlyTheCurves) {
  fs::create_directories(run_);
  std::ofstream(board_) << "x";
  ::testing::internal::CaptureStderr();
  {
    TensorBoard tensorboard({.run = run_});
    tensorboard.add({{"kind", "step"}, {"step", 1}, {"loss", 1}});
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cannot create its folder"));
  EXPECT_EQ(read_file(board_), "x");
}

TEST_F(EventFiles, FollowNoLink) {
  const fs::path other = folder_ / "other";
  const auto expect_replaced = [&](const fs::path& link) {
    fs::create_directory_symlink(other, link);
    ::testing::internal::CaptureStderr();
    { TensorBoard tensorboard({.run = run_}); }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr(link.string() + ": was a link, which is not followed"));
    EXPECT_FALSE(fs::is_symlink(link));
    EXPECT_TRUE(fs::is_empty(other));
  };
  fs::create_directories(other);
  fs::create_directories(run_);
  expect_replaced(board_);
  fs::remove_all(board_ / "system");
  expect_replaced(board_ / "system");
  EXPECT_FALSE(fs::is_empty(board_ / "system"));
}

TEST_F(EventFiles, AreNamedInTheOrderOfTheirRuns) {
  const fs::path first = next_event_file(board_, 100);
  EventFile a(first);
  const fs::path second = next_event_file(board_, 100), later = next_event_file(board_, 5000);
  EXPECT_LT(first.filename(), second.filename()) << "in the same second";
  EXPECT_LT(second.filename(), later.filename());
}

TEST_F(EventFiles, OfARankThatDoesNotLeadHaveOnlyItsProcess) {
  for (const bool leads : {true, false}) {
    const fs::path run = run_ / (leads ? "0" : "1"), board = run / "tensorboard";
    {
      TensorBoard tensorboard({.run = run, .leads = leads});
      tensorboard.add({{"kind", "step"}, {"step", 1}, {"loss", 1}});
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(board), {}), leads ? 2 : 1);
    const std::string system = read_file(fs::directory_iterator(board / "system")->path());
    EXPECT_NE(system.find("system/process_rss_MB"), std::string::npos);
    EXPECT_EQ(system.find("system/memory_available_MB") != std::string::npos, leads);
  }
}

TEST_F(EventFiles, AreRemovedWithoutTheUsersOwnFiles) {
  { TensorBoard tensorboard({.run = run_}); }
  std::ofstream(board_ / "notes") << "x";
  remove_event_files(run_);
  EXPECT_TRUE(fs::exists(board_ / "notes"));
  EXPECT_FALSE(fs::exists(board_ / "system"));
  EXPECT_EQ(std::distance(fs::directory_iterator(board_), {}), 1);
  fs::remove(board_ / "notes");
  remove_event_files(run_);
  EXPECT_FALSE(fs::exists(board_));
  remove_event_files(run_);
}

}  // namespace
}  // namespace warpstep::tools
