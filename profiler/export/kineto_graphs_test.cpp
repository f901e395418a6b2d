// A graph's launch in a Kineto trace: CUPTI gives all its kernels one correlation, readers want one
// for each.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "profiler/export/export.h"
#include "profiler/export/testing_events.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;

// Launches by correlation, as the readers join them.
std::map<std::int64_t, std::vector<Json>> launches(const std::vector<Json>& events) {
  std::map<std::int64_t, std::vector<Json>> all;
  for (const Json& event : of_category(events, "cuda_runtime"))
    all[event["args"]["correlation"]].push_back(event);
  return all;
}

TEST(KinetoGraphs, EachNodeOfAGraphHasALaunchInsideTheGraphs) {
  const auto events = events_of(device_session(1).build());
  auto by_correlation = launches(events);
  std::set<std::int64_t> seen;
  for (const Json& kernel : of_category(events, "kernel")) {
    const std::int64_t correlation = kernel["args"]["correlation"];
    EXPECT_TRUE(seen.insert(correlation).second) << "shared";
    ASSERT_THAT(by_correlation[correlation], SizeIs(1));
    const Json& launch = by_correlation[correlation][0];
    EXPECT_EQ(launch["args"]["External id"], kernel["args"]["External id"]);
    if (!kernel["args"].contains("graph node id")) continue;
    EXPECT_GE(ns(launch["ts"]), 1'400'000);  // the graph's launch: 400 to 440 us in the step
    EXPECT_LE(ns(launch["ts"]) + ns(launch["dur"]), 1'440'000);
  }
  EXPECT_THAT(seen, SizeIs(5));
}

// The op of each kernel, as torch_tb_profiler finds it.
std::map<std::string, std::string> ops_of_nodes(const std::vector<Json>& events) {
  std::map<std::int64_t, std::string> ops;
  for (const Json& op : of_category(events, "cpu_op"))
    EXPECT_TRUE(ops.emplace(op["args"]["External id"], op["name"]).second) << "an id twice";
  std::map<std::string, std::string> found;
  for (const Json& kernel : of_category(events, "kernel"))
    if (kernel["args"].contains("graph node id"))
      found[std::to_string(kernel["args"]["graph node id"].get<std::int64_t>() & 0xFF)] =
          ops[kernel["args"]["External id"]];
  return found;
}

TEST(KinetoGraphs, EachNodeOfAGraphIsOfItsCall) {
  EXPECT_EQ(ops_of_nodes(events_of(device_session(1).build())),
            (std::map<std::string, std::string>{{"1", "relu1.forward"},
                                                {"2", "relu1.forward"},
                                                {"3", "relu2.forward"},
                                                {"4", "update"}}));
}

TEST(KinetoGraphs, GraphsStayWholeWhereThatIsAsked) {
  const auto events = events_of(device_session(1).build(), {.split_graphs = false});
  std::map<std::int64_t, int> by_correlation;
  for (const Json& kernel : of_category(events, "kernel"))
    ++by_correlation[kernel["args"]["correlation"]];
  EXPECT_THAT(by_correlation, ElementsAre(::testing::Pair(1001, 1), ::testing::Pair(1002, 4)));
  EXPECT_THAT(launches(events), SizeIs(3));
}

// A graph of more nodes than its launch has nanoseconds.
TEST(KinetoGraphs, AShortLaunchOfManyNodesIsStillSound) {
  SessionBuilder builder = device_session(2);
  builder.launch(2950, 2950.05, What::kernel, "node", 3000, 3000.1);
  Activity node = builder.last_activity();
  for (std::uint64_t k = 0; k < 300; ++k) {
    node.start_ns = node.end_ns;
    node.end_ns += 10;
    node.graph_node = 100 + k;
    builder.activity(node, Kind::kernel, "node");
  }
  EXPECT_THAT(check_kineto(kineto_json(builder.build())), IsEmpty());
}

}  // namespace
}  // namespace warpstep::profiler
