#include "profiler/export/scalars.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace warpstep::profiler {
namespace {

using Record = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::Optional;

auto scalar(const char* tag, double value) {
  return AllOf(Field(&Scalar::tag, tag), Field(&Scalar::value, value));
}

TEST(Scalars, MapEveryNumberOfARecord) {
  EXPECT_THAT(
      scalars_of(Record{{"kind", "step"},
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
  EXPECT_THAT(scalars_of(Record{{"kind", "evaluation"}, {"loss", 1}}),
              ElementsAre(scalar("validation/loss", 1)));
  EXPECT_THAT(scalars_of(Record{{"kind", "epoch"}, {"loss", 1}}),
              ElementsAre(scalar("epoch/loss", 1)));
}

TEST(Scalars, NameTheMachinesSamples) {
  EXPECT_THAT(machine_scalar("cpu %", 50), Optional(scalar("system/cpu_percent", 50)));
  EXPECT_EQ(machine_scalar("cpu 0 %", 99), std::nullopt);
  EXPECT_THAT(machine_scalar("cpu throttled %", 5),
              Optional(scalar("system/cpu_throttled_percent", 5)));
  EXPECT_THAT(machine_scalar("cpu power W", 90), Optional(scalar("system/cpu_power_W", 90)));
  EXPECT_THAT(machine_scalar("process rss bytes", 2e6),
              Optional(scalar("system/process_rss_MB", 2)));
  EXPECT_THAT(machine_scalar("disk read bytes/s", 5e5),
              Optional(scalar("system/disk_read_MB_per_s", 0.5)));
  EXPECT_THAT(machine_scalar("major faults/s", 3),
              Optional(scalar("system/major_faults_per_s", 3)));
  EXPECT_THAT(machine_scalar("gpu 1 utilisation %", 97),
              Optional(scalar("system/gpu_1_utilisation_percent", 97)));
  EXPECT_THAT(machine_scalar("gpu 1 power W", 300), Optional(scalar("system/gpu_1_power_W", 300)));
  EXPECT_EQ(machine_scalar("gpu 1 throttle reasons", 4), std::nullopt);
}

}  // namespace
}  // namespace warpstep::profiler
