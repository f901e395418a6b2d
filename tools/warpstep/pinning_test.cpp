#include "tools/warpstep/pinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* no_topology = "/no/such/folder";

Pinning pinned(const char* text, int threads, const AvailableCpus& available, CpuShare share = {}) {
  return choose_pinning(text, threads, available, share, no_topology);
}

std::string refusal(const char* text, int threads, const AvailableCpus& available,
                    CpuShare share = {}) try {
  pinned(text, threads, available, share);
  return "accepted";
} catch (const UsageError& error) {
  return error.what();
}

TEST(Pinning, GivesTheTeamACpuPerThreadAndTheRestToTheOthers) {
  const Pinning pinning = pinned("auto", 2, {{0, 1, 4, 5}, {}});
  EXPECT_THAT(pinning.places.team, ElementsAre(0, 1));
  EXPECT_THAT(pinning.places.others, ElementsAre(4, 5));
  EXPECT_EQ(pinning.text(), "2 threads on CPUs 0-1, loader on CPUs 4-5");
  EXPECT_EQ(Json(pinning).dump(), R"({"team":"0-1","others":"4-5"})");
  EXPECT_EQ(Json(Pinning()).dump(), R"({"team":"none","others":"none"})");
  EXPECT_EQ(pinned("none", 2, {{0}, {}}).text(), "");
}

TEST(Pinning, SharesTheCpusWhereNoneAreLeft) {
  const Pinning pinning = pinned("auto", 0, {{2, 3}, {}});
  EXPECT_THAT(pinning.places.team, ElementsAre(2, 3));
  EXPECT_EQ(pinning.text(), "2 threads on CPUs 2-3, loader on the same CPUs 2-3");
}

TEST(Pinning, OfAListStaysWithinTheList) {
  const Pinning pinning = pinned("1,3,5", 2, {{0, 1, 2, 3, 4, 5}, 0.5});
  EXPECT_THAT(pinning.places.team, ElementsAre(1, 3));
  EXPECT_THAT(pinning.places.others, ElementsAre(5));
}

TEST(Pinning, OfAutoRespectsTheQuota) {
  const Pinning pinning = pinned("auto", 0, {{0, 1, 2, 3}, 1.5});
  EXPECT_EQ(pinning.text(), "2 threads on CPUs 0-1, loader on CPUs 2-3");
  EXPECT_EQ(pinned("auto", 0, {{0, 1}, 0.25}).threads(), 1);
  EXPECT_THAT(refusal("auto", 2, {{0, 1}, 0.25}),
              HasSubstr("2 threads do not fit on CPUs 0-1, of which the control group's quota of "
                        "0.25 cores allows 1; use --threads 1, a list of CPUs or --pin-cpus none"));
}

TEST(Pinning, GivesRanksOfOneMachineCpusOfTheirOwn) {
  const AvailableCpus available{{0, 1, 2, 3}, {}};
  EXPECT_THAT(pinned("auto", 0, available, {0, 2}).places.team, ElementsAre(0, 1));
  EXPECT_THAT(pinned("auto", 0, available, {1, 2}).places.team, ElementsAre(2, 3));
  const Pinning second = pinned("0,2", 1, available, {1, 2});
  EXPECT_THAT(second.places.team, ElementsAre(2));
  EXPECT_THAT(second.places.others, ElementsAre(2));
  EXPECT_EQ(pinned("auto", 0, {{0, 1, 2, 3}, 1.5}, {1, 2}).threads(), 1);
  EXPECT_THAT(refusal("auto", 3, available, {1, 2}),
              HasSubstr("3 threads do not fit on CPUs 2-3, one of 2 parts, one for each rank; "
                        "use --threads 2, or --pin-cpus none"));
}

TEST(Pinning, RefusesWhatIsNotThere) {
  EXPECT_THAT(refusal("0-3", 2, {{0, 1}, {}}),
              HasSubstr("--pin-cpus 0-3: this process may not run on CPU 2-3, only on 0-1"));
  EXPECT_THAT(refusal("0-1", 3, {{0, 1, 2, 3}, {}}),
              HasSubstr("3 threads do not fit on CPUs 0-1; use --threads 2, more CPUs or "
                        "--pin-cpus none"));
  EXPECT_THAT(refusal("auto", 3, {{7}, {}}),
              HasSubstr("3 threads do not fit on CPU 7; use --threads 1, or --pin-cpus none"));
  EXPECT_THAT(refusal("auto", 0, {}), HasSubstr("the kernel does not say"));
  EXPECT_THAT(refusal("0;1", 1, {{0, 1}, {}}), HasSubstr("is not a list of CPUs"));
}

}  // namespace
}  // namespace warpstep::tools
