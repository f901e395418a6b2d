#include "profiler/analysis/memory.h"

#include <gtest/gtest.h>

#include <random>

namespace warpstep::profiler {
namespace {

Json buffer(const std::string& name, std::uint64_t bytes, std::uint64_t offset, int first,
            int last) {
  return {{"name", name},
          {"bytes", bytes},
          {"offset", offset},
          {"first_call", first},
          {"last_call", last}};
}

Session with_plan(Json memory, std::size_t calls) {
  Session session;
  session.program = {{"calls", Json::array()}, {"memory", std::move(memory)}};
  for (std::size_t i = 0; i < calls; ++i) session.program["calls"].push_back(Json::object());
  return session;
}

TEST(MemoryTimeline, TellsWhoHoldsWhatAtThePeak) {
  const Session session =
      with_plan({{"arena_bytes", 1000},
                 {"parameter_bytes", 50},
                 {"moment_bytes", 25},
                 {"total_bytes", 1095},
                 {"buffers",
                  {buffer("conv1/y", 100, 0, 1, 4), buffer("conv1/conv workspace", 600, 100, 1, 1),
                   buffer("conv2/y", 200, 100, 2, 3), buffer("d_conv2/weight", 550, 300, 3, 4)}}},
                4);
  const MemoryTimeline memory = memory_timeline(session);
  EXPECT_EQ(memory.kinds, (std::vector<std::string>{"parameter", "moment", "copy", "activation",
                                                    "workspace", "gradient"}));
  EXPECT_EQ(memory.persistent_bytes, 95U);
  EXPECT_EQ(memory.by_kind[0], (std::vector<std::uint64_t>{50, 50, 50, 50}));
  EXPECT_EQ(memory.by_kind[2][0], 20U);  // what the total has beyond the known parts
  EXPECT_EQ(memory.by_kind[3], (std::vector<std::uint64_t>{100, 300, 300, 100}));
  EXPECT_EQ(memory.by_kind[4], (std::vector<std::uint64_t>{600, 0, 0, 0}));
  EXPECT_EQ(memory.by_kind[5], (std::vector<std::uint64_t>{0, 0, 550, 550}));
  EXPECT_EQ(memory.peak_bytes, 850U);
  EXPECT_EQ(memory.peak_call, 2);
  ASSERT_EQ(memory.at_peak.size(), 3U);
  EXPECT_EQ(memory.at_peak[0].name, "d_conv2/weight");
  EXPECT_EQ(memory.at_peak[2].name, "conv1/y");
  EXPECT_DOUBLE_EQ(memory.fragmentation, 0.15);
  EXPECT_EQ(memory.allocations[3].first_call, 2);
}

TEST(MemoryTimeline, PrefersWhatThePlanTellsOfKindsAndOwners) {
  Json y = buffer("y", 10, 0, 1, 1);
  y["kind"] = "gradient";
  y["layer"] = "conv1";
  const Session session = with_plan(
      {{"arena_bytes", 10},
       {"parameter_bytes", 999},
       {"buffers", {y}},
       {"persistent",
        {{{"kind", "parameter"}, {"layer", "conv1"}, {"name", "conv1/weight"}, {"bytes", 7}},
         {{"bytes", 0}}}}},
      1);
  const MemoryTimeline memory = memory_timeline(session);
  EXPECT_EQ(memory.allocations[0].owner.kind, "gradient");
  EXPECT_EQ(memory.allocations[0].owner.layer, "conv1");
  ASSERT_EQ(memory.persistent.size(), 1U);
  EXPECT_EQ(memory.persistent[0].layer, "conv1");
  EXPECT_EQ(memory.persistent_bytes, 7U);
}

TEST(MemoryTimeline, AgreesWithACountAtEveryCall) {
  std::mt19937 random(3);
  const auto upto = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int round = 0; round < 200; ++round) {
    const int calls = 1 + upto(20);
    Json buffers = Json::array();
    std::vector<std::uint64_t> live(static_cast<std::size_t>(calls));
    for (int i = upto(30); i > 0; --i) {
      const int first = 1 + upto(calls - 1), last = std::min(calls, first + upto(5));
      const auto bytes = static_cast<std::uint64_t>(upto(1000));
      buffers.push_back(buffer(upto(1) == 0 ? "x" : "d_x", bytes, 0, first, last));
      for (int c = first; c <= last; ++c) live[static_cast<std::size_t>(c) - 1] += bytes;
    }
    const MemoryTimeline memory = memory_timeline(
        with_plan({{"arena_bytes", 0}, {"buffers", buffers}}, static_cast<std::size_t>(calls)));
    ASSERT_EQ(memory.peak_bytes, *std::max_element(live.begin(), live.end()));
    for (std::size_t call = 0; call < live.size(); ++call) {
      std::uint64_t sum = 0;
      for (const auto& curve : memory.by_kind) sum += curve[call];
      ASSERT_EQ(sum, live[call]);
    }
  }
}

TEST(MemoryTimeline, SurvivesAnyPlan) {
  EXPECT_TRUE(memory_timeline(Session{}).allocations.empty());
  EXPECT_EQ(memory_timeline(with_plan("text", 2)).peak_bytes, 0U);
  EXPECT_EQ(memory_timeline(with_plan({{"buffers", 7}, {"persistent", "x"}}, 0)).peak_bytes, 0U);
  // Numbers that cannot be: counted as far as there are calls.
  Json wild = buffer("x", 5, 0, -3, 2'000'000'000);
  const MemoryTimeline memory = memory_timeline(with_plan({{"buffers", {wild, 3, nullptr}}}, 2));
  EXPECT_EQ(memory.peak_bytes, 5U);
  EXPECT_EQ(memory.allocations[0].last_call, 1);
  Session no_calls;
  no_calls.program = {{"memory", {{"buffers", {wild}}}}};
  EXPECT_EQ(memory_timeline(no_calls).peak_bytes, 5U);
}

}  // namespace
}  // namespace warpstep::profiler
