#include "engine/core/phase.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

namespace warpstep::record {
namespace {

void pass_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Phase, AreRecordedWithoutAProfilerAndNest) {
  take_phases();
  const Name outer{"outer phase"}, inner{"inner phase"};
  {
    const Phase a(outer, 7);
    const Phase b(inner);
  }
  const std::vector<PhaseEntry> phases = take_phases();
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases[0].name, inner.id());
  EXPECT_EQ(phases[0].depth, 1U);
  EXPECT_EQ(phases[1].name, outer.id());
  EXPECT_EQ(phases[1].depth, 0U);
  EXPECT_EQ(phases[1].arg, 7U);
  EXPECT_LE(phases[1].begin_ns, phases[0].begin_ns);
  EXPECT_LE(phases[0].end_ns, phases[1].end_ns);
  EXPECT_TRUE(take_phases().empty());
}

TEST(Phase, PartsAreSummedByNameAndCountOnce) {
  take_phases();
  const Name whole{"saves"}, reads{"reads"}, writes{"writes"};
  {
    const Phase phase(whole);
    for (int i = 0; i < 2; ++i) {
      {
        const PhasePart part(reads);
        pass_time();
      }
      const PhasePart part(writes);
      const PhasePart within(reads);  // is counted as writing already
      pass_time();
    }
  }
  const PhasePart without(reads);  // no phase is open
  const std::vector<PhaseEntry> phases = take_phases();
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].name, reads.id());
  EXPECT_EQ(phases[0].depth, 1U);
  EXPECT_GE(phases[0].ns, 4'000'000U);
  EXPECT_LT(phases[0].ns, phases[0].end_ns - phases[0].begin_ns);
  EXPECT_EQ(phases[1].name, writes.id());
  EXPECT_LE(phases[0].ns + phases[1].ns, phases[2].ns);
}

TEST(Phase, OfOneThreadIsNotAroundThoseOfAnother) {
  take_phases();
  const Name here{"here"}, there{"there"};
  const Phase phase(here);
  std::thread([&] { const Phase other(there); }).join();
  const std::vector<PhaseEntry> phases = take_phases();
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].depth, 0U);
}

TEST(Phase, TheProcessBeganALittleAgo) {
  const std::uint64_t start = process_start_ns();
  EXPECT_LE(start, now_ns());
  EXPECT_LT(now_ns() - start, 600'000'000'000U);
  EXPECT_EQ(start, process_start_ns());
}

}  // namespace
}  // namespace warpstep::record
