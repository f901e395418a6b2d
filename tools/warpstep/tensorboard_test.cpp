#include "tools/warpstep/tensorboard.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/file.h"
#include "profiler/sources/sampler_proc.h"
#include "tests/data_testing.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using profiler::Scalar;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto scalar(const char* tag, double value) {
  return AllOf(Field(&Scalar::tag, tag), Field(&Scalar::value, value));
}

TEST(ScalarsOf, MapEveryNumberOfARecord) {
  EXPECT_THAT(
      scalars_of(Json{{"kind", "step"},
                      {"step", 7},
                      {"loss", 2.5},
                      {"name", "x"},
                      {"flag", true},
                      {"none", nullptr},
                      {"blocks", {{{"norm", 1}}, {{"norm", 3.5}}}},
                      {"attention", {{"entropy", -1}}},
                      {"time", 1e9}}),
      ElementsAre(scalar("train/loss", 2.5), scalar("train/blocks/0/norm", 1),
                  scalar("train/blocks/1/norm", 3.5), scalar("train/attention/entropy", -1)));
  EXPECT_THAT(scalars_of(Json{{"kind", "evaluation"}, {"loss", 1}}),
              ElementsAre(scalar("validation/loss", 1)));
  EXPECT_THAT(scalars_of(Json{{"kind", "epoch"}, {"loss", 1}}),
              ElementsAre(scalar("epoch/loss", 1)));
}

TEST(ScalarsOf, NameTheMachinesSamples) {
  using Metrics = std::vector<profiler::Metric>;
  EXPECT_THAT(scalars_of(Metrics{{"cpu %", 50},
                                 {"cpu 0 %", 99},
                                 {"process rss bytes", 2e6},
                                 {"disk read bytes/s", 5e5},
                                 {"gpu 1 utilisation %", 97},
                                 {"gpu 1 power W", 300},
                                 {"gpu 1 throttle reasons", 4}}),
              ElementsAre(scalar("system/cpu_percent", 50), scalar("system/process_rss_MB", 2),
                          scalar("system/disk_read_MB_per_s", 0.5),
                          scalar("system/gpu_1_utilisation_percent", 97),
                          scalar("system/gpu_1_power_W", 300)));
}

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

TEST_F(EventFiles, AreNamedInTheOrderOfTheirRuns) {
  const fs::path first = next_event_file(board_, 100);
  EventFile a(first);
  const fs::path second = next_event_file(board_, 100), later = next_event_file(board_, 5000);
  EXPECT_LT(first.filename(), second.filename()) << "in the same second";
  EXPECT_LT(second.filename(), later.filename());
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
