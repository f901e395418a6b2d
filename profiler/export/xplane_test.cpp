#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "profiler/export/export.h"
#include "profiler/export/testing_proto.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using namespace testing;

struct XEvent {
  std::string name;
  std::uint64_t offset_ps = 0, duration_ps = 0;
  std::map<std::string, std::uint64_t> stats;  // whole numbers only
};

// A plane's names by their numbers: 4 of events, 5 of stats.
std::map<std::uint64_t, std::string> names_in(const ProtoView& plane, std::uint32_t field) {
  std::map<std::uint64_t, std::string> names;
  for (const ProtoView& entry : plane.messages(field))
    names[entry.number(1)] = entry.message(2).text(2);
  return names;
}

// Events by line.
std::map<std::string, std::vector<XEvent>> lines_of(const ProtoView& plane) {
  auto events = names_in(plane, 4), stats = names_in(plane, 5);
  std::map<std::string, std::vector<XEvent>> lines;
  for (const ProtoView& line : plane.messages(3))
    for (const ProtoView& event : line.messages(4)) {
      XEvent& read = lines[line.text(2)].emplace_back(
          XEvent{events[event.number(1)], event.number(2), event.number(3), {}});
      for (const ProtoView& stat : event.messages(4))
        if (const auto numbers = stat.numbers(4); !numbers.empty())
          read.stats[stats[stat.number(1)]] = numbers[0];
    }
  return lines;
}

std::vector<ProtoView> planes_of(const std::string& space) {
  return ProtoView(space).messages(1);
}

TEST(XPlane, HasStepsWaitsOpsAndTheLoadersWork) {
  const std::string space = xplane_space(host_session(2).build());
  const auto planes = planes_of(space);
  ASSERT_THAT(planes, SizeIs(1));
  EXPECT_EQ(planes[0].text(2), "/host:CPU");
  EXPECT_EQ(ProtoView(space).text(4), "host");
  auto lines = lines_of(planes[0]);
  const std::vector<XEvent>& main = lines["main"];
  ASSERT_THAT(main, SizeIs(10));
  EXPECT_EQ(main[0].name, "train");
  EXPECT_EQ(main[0].duration_ps, 1'000'000'000U);
  EXPECT_EQ(main[0].stats, (std::map<std::string, std::uint64_t>{{"step_num", 1}, {"_r", 1}}));
  EXPECT_EQ(main[1].name, "IteratorGetNext");
  EXPECT_EQ(main[1].offset_ps, main[0].offset_ps);
  EXPECT_EQ(main[1].duration_ps, 200'000'000U);
  EXPECT_EQ(main[2].name, "step");
  EXPECT_EQ(main[3].name, "conv1.forward:Conv2d");
  EXPECT_EQ(main[5].stats.at("step_num"), 2U);
  ASSERT_THAT(lines["loader 0"], SizeIs(4));
  EXPECT_EQ(lines["loader 0"][0].name, "Iterator::Prefetch");
  EXPECT_EQ(lines["loader 0"][1].name, "Iterator::Prefetch::ParallelMap::decode");
}

TEST(XPlane, HasTheWorkOfADeviceWithItsLaunches) {
  const std::string space = xplane_space(device_session(1).build());
  const auto planes = planes_of(space);
  ASSERT_THAT(planes, SizeIs(2));
  EXPECT_EQ(planes[0].text(2), "/device:GPU:0");
  std::map<std::uint64_t, int> launches;
  for (const auto& [name, events] : lines_of(planes[1]))
    for (const XEvent& event : events)
      if (event.stats.contains("correlation_id")) ++launches[event.stats.at("correlation_id")];
  std::size_t work = 0;
  auto lines = lines_of(planes[0]);
  ASSERT_THAT(lines["Steps"], SizeIs(1));
  EXPECT_EQ(lines["Steps"][0].stats.at("group_id"), 0U);
  EXPECT_EQ(lines["Steps"][0].duration_ps, 1'000'000'000U);
  EXPECT_EQ(lines["Stream #13"][0].name, "MemcpyHtoD (Pinned -> Device)");
  lines.erase("Steps");
  for (const auto& [name, events] : lines)
    for (const XEvent& event : events) {
      EXPECT_EQ(launches[event.stats.at("correlation_id")], 1) << name << ": " << event.name;
      ++work;
    }
  EXPECT_EQ(work, 6U) << "a copy, a kernel, a graph's four nodes";
}

// Otherwise xprof would call any such run "not input-bound".
TEST(XPlane, ARunThatRecordedStepsAloneHasTheirParts) {
  SessionBuilder builder;
  builder.step(1, 0, 10, 3, 5, 1);
  const std::string space = xplane_space(builder.build());
  auto lines = lines_of(planes_of(space)[0]);
  std::vector<std::string> names;
  for (const XEvent& event : lines["main"]) names.push_back(event.name);
  EXPECT_THAT(names, ElementsAre("train", "IteratorGetNext", "kernels", "cpu"));
  EXPECT_EQ(lines["main"][1].duration_ps, 5'000'000U);
}

// As of a process that was killed within its window.
TEST(XPlane, HasNoPartsBesideSpansWithoutAWindow) {
  SessionBuilder builder = host_session(2);
  builder.raw().windows.clear();
  const std::string space = xplane_space(builder.build());
  const auto lines = lines_of(planes_of(space)[0]);
  ASSERT_TRUE(lines.contains("main"));
  for (const XEvent& event : lines.at("main"))
    EXPECT_THAT(event.name, ::testing::Not(::testing::AnyOf("kernels", "cpu")));
}

TEST(XPlane, LiesWhereItsReadersLook) {
  EXPECT_EQ(xplane_name(device_session().build()),
            "plugins/profile/2023_11_14_22_13_20/train-1.xplane.pb");
  EXPECT_EQ(planes_of(xplane_space(Session{})).size(), 1U);
}

}  // namespace
}  // namespace warpstep::profiler
