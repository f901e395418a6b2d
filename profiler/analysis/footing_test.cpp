#include "profiler/analysis/footing.h"

#include <gmock/gmock.h>

#include "profiler/session/session.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A session that was recorded on the machine of a stamp.
Session stamped_session() {
  Session session;
  session.stamp = Json::parse(R"({
    "options": {"model": "cnn", "batch": 128, "precision": "fp32", "seed": 0, "threads": 0,
                "pin_cpus": "none", "data": "a/set", "out": "runs/a"},
    "data": {"fingerprint": "f00d"},
    "program": {"version": "1.0", "commit": "abc", "compiler": "GNU 12.2.0, Release"},
    "device": {"backend": "cpu", "threads": 8},
    "pinned": {"team": "none", "others": "none"},
    "cpu": {"model": "one CPU", "instruction_set": "AVX-512", "boost": "on", "frequency_mhz": 2600,
            "clocks": [{"cpus": "0-7", "governor": "performance", "max_mhz": 3800,
                        "current_mhz": [2600, 2700]}]},
    "affinity": "0-7", "kernel": "6.1", "load_average": [0.1, 0.1, 0.1],
    "gpus": [{"driver": "580", "sm_clock_mhz": 345, "application_sm_clock_mhz": 1830}]})");
  return session;
}

std::vector<std::string> texts(const std::vector<FootingDifference>& differences) {
  std::vector<std::string> all;
  for (const FootingDifference& difference : differences) all.push_back(difference.text());
  return all;
}

TEST(Footing, IsEqualWhateverChangesFromMomentToMoment) {
  const Session before = stamped_session();
  Session after = stamped_session();
  after.stamp["options"]["out"] = "runs/b";
  after.stamp["options"]["data"] = "a copy of the set";
  after.stamp["cpu"]["frequency_mhz"] = 3100;
  after.stamp["cpu"]["clocks"][0]["current_mhz"] = {800, 3800};
  after.stamp["load_average"] = {2, 2, 2};
  after.stamp["gpus"][0]["sm_clock_mhz"] = 1980;
  const Footing footing = compare_footing(before, after, false);
  EXPECT_TRUE(footing.is_equal());
  EXPECT_THAT(texts(footing.by_intent), IsEmpty());
  EXPECT_THAT(footing.warnings, IsEmpty());
  EXPECT_EQ(footing_verdict(footing), "");
}

TEST(Footing, HasThePriorityOfTheProcess) {
  const Session before = stamped_session();  // of a version that did not record it, or as usual
  Session after = stamped_session();
  after.stamp["scheduling"] = {{"nice", 10}, {"policy", "batch"}};
  EXPECT_THAT(texts(compare_footing(before, after, false).by_machine),
              ElementsAre("scheduling: nice 0 before, nice 10, policy batch after"));
}

TEST(Footing, SortsWhatDiffersByIntent) {
  const Session before = stamped_session();
  Session after = stamped_session();
  after.stamp["options"].update({{"precision", "bf16"}, {"seed", 7}, {"pin_cpus", "auto"}});
  after.stamp["options"]["data"] = "b";
  after.stamp["data"]["fingerprint"] = "beef";
  after.stamp["program"]["commit"] = "def-dirty";
  after.stamp["pinned"] = {{"team", "0-7"}, {"others", "0-7"}};  // as --pin-cpus says
  const Footing footing = compare_footing(before, after, false);
  EXPECT_THAT(texts(footing.by_intent),
              ElementsAre("precision: fp32 before, bf16 after", "seed: 0 before, 7 after",
                          "pin_cpus: none before, auto after", "data: a/set before, b after",
                          "program.commit: abc before, def-dirty after"));
  EXPECT_TRUE(footing.is_equal());
}

TEST(Footing, IsUnequalWhereTheMachineDiffers) {
  const Session before = stamped_session();
  Session after = stamped_session();
  after.stamp["cpu"]["instruction_set"] = "AVX2";
  after.stamp["cpu"]["clocks"][0]["governor"] = "powersave";
  after.stamp["affinity"] = "0-3";
  after.stamp["gpus"][0].update({{"driver", "590"}, {"application_sm_clock_mhz", 1200}});
  after.stamp["program"]["compiler"] = "GNU 12.2.0, Debug";
  after.stamp["device"]["threads"] = 4;
  after.stamp["cgroup"]["cpu_quota_cores"] = 0.25;
  const Footing footing = compare_footing(before, after, false);
  EXPECT_THAT(texts(footing.by_machine),
              ElementsAre("cpu.instruction_set: AVX-512 before, AVX2 after",
                          "cpu.clocks.0.governor: performance before, powersave after",
                          "affinity: 0-7 before, 0-3 after", "gpus.0.driver: 580 before, 590 after",
                          "gpus.0.application_sm_clock_mhz: 1830 before, 1200 after",
                          "program.compiler: GNU 12.2.0, Release before, GNU 12.2.0, Debug after",
                          "device.threads: 8 before, 4 after",
                          "cgroup.cpu_quota_cores: none before, 0.25 after"));
  EXPECT_EQ(footing_verdict(footing),
            "Not on equal footing: the machine differs in cpu.instruction_set: AVX-512 before, "
            "AVX2 after, and in 7 more points.");
}

// The same GPU, which the processes saw under different numbers, or beside another one.
TEST(Footing, IsEqualOnTheSameGpuWhateverItsNumber) {
  Session before = stamped_session();
  before.names.push_back({"NVIDIA H200", Kind::range});
  Session after = before;
  before.devices.push_back({.id = 0});
  before.stamp["gpus"][0]["id"] = 0;
  after.devices.push_back({.id = 3});
  after.stamp["gpus"][0]["id"] = 3;
  EXPECT_TRUE(compare_footing(before, after, false).is_equal());
  Session old = before;  // all GPUs of the machine
  old.devices.push_back({.id = 1});
  old.stamp["gpus"][0].erase("id");
  old.stamp["gpus"].push_back({{"driver", "another"}});
  const Footing footing = compare_footing(old, after, false);
  EXPECT_TRUE(footing.is_equal());
  EXPECT_THAT(footing.warnings, IsEmpty());
  after.stamp["gpus"][0]["driver"] = "590";
  EXPECT_THAT(texts(compare_footing(before, after, false).by_machine),
              ElementsAre("gpus.0.driver: 580 before, 590 after"));
}

TEST(Footing, OfAnOldSessionIsUnknownNotUnequal) {
  Session before = stamped_session();
  before.stamp["cpu"].erase("instruction_set");
  before.stamp["options"].erase("pin_cpus");
  before.stamp.erase("pinned");
  const Footing footing = compare_footing(before, stamped_session(), false);
  EXPECT_TRUE(footing.is_equal());
  EXPECT_THAT(texts(footing.by_intent), IsEmpty());
  EXPECT_THAT(footing.warnings,
              ElementsAre("pin_cpus: not recorded before, none after",
                          "cpu.instruction_set: not recorded before, AVX-512 after"));
  EXPECT_TRUE(compare_footing({}, {}, false).is_equal());
}

TEST(Footing, OfAProcessThatWasKilledBeforeItBeganIsNotRefused) {
  EXPECT_NO_THROW(compare_footing(stamped_session(), {}, false));
  EXPECT_NO_THROW(compare_footing({}, stamped_session(), false));
}

}  // namespace
}  // namespace warpstep::profiler
