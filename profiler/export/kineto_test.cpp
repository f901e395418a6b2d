#include <gmock/gmock.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_events.h"
#include "profiler/export/testing_sessions.h"
#include "profiler/export/trace_file.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/testing_tree.h"
#include "tests/source_file.h"

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using namespace testing;

std::filesystem::path golden_path() {
  return testing_support::source_file("profiler/testdata/smallest.pt.trace.json");
}

TEST(Kineto, TheSmallestTraceIsTheGoldenOne) {
  const std::string json = kineto_json(smallest_session().build());
  if (std::getenv("WARPSTEP_UPDATE_GOLDEN") != nullptr) write_atomically(golden_path(), json);
  EXPECT_EQ(json, read_file(golden_path()));
}

// The golden trace by another parser: what it says is what the session has.
TEST(Kineto, TheGoldenTraceSaysWhatTheSessionHas) {
  const Json trace = Json::parse(read_file(golden_path()));
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'700'000'000'000'000'000);
  EXPECT_EQ(trace["deviceProperties"][0]["numSms"], 132);
  EXPECT_EQ(trace["deviceProperties"][0]["name"], "NVIDIA H200");
  EXPECT_EQ(trace["traceName"], "train_4242.1700000000000000000.pt.trace.json");
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] != "M") events.push_back(event);
  ASSERT_EQ(events.size(), 9U);
  EXPECT_EQ(events[0]["name"], "ProfilerStep#1");
  EXPECT_EQ(events[0]["cat"], "user_annotation");
  EXPECT_EQ(events[0]["ts"], 1000.0);
  EXPECT_EQ(events[0]["dur"], 900.0);
  EXPECT_EQ(events[1]["name"], "enumerate(DataLoader)#Warpstep.__next__");
  EXPECT_EQ(events[1]["args"], (Json{{"External id", 2}, {"batch", 17}}));
  EXPECT_EQ(events[2]["name"], "sample");
  EXPECT_EQ(events[3]["name"], "decode");
  EXPECT_EQ(events[3]["cat"], "loader");
  EXPECT_EQ(events[3]["tid"], 4301);
  EXPECT_EQ(events[3]["args"], (Json{{"batch", 17}, {"sample", 3}}));
  EXPECT_EQ(events[4]["cat"], "cpu_op");
  EXPECT_EQ(events[4]["args"]["Input Dims"].dump(), "[[128,224,224,3]]");
  EXPECT_EQ(events[4]["args"]["Input type"][0], "c10::Half");
  EXPECT_EQ(events[5]["cat"], "cuda_runtime");
  EXPECT_EQ(events[5]["args"]["External id"], events[4]["args"]["External id"]);
  EXPECT_EQ(events[6]["ph"], "s");
  EXPECT_EQ(events[7]["cat"], "kernel");
  EXPECT_EQ(events[7]["args"]["External id"], events[4]["args"]["External id"]);
  EXPECT_EQ(events[7]["args"]["correlation"], events[5]["args"]["correlation"]);
  EXPECT_EQ(events[7]["args"]["blocks per SM"], 0.5);
  EXPECT_EQ(events[7]["args"]["warps per SM"], 4.0);
  EXPECT_EQ(events[7]["args"]["est. achieved occupancy %"], 6);
  EXPECT_EQ(events[7]["args"]["grid"].dump(), "[66,1,1]");
  EXPECT_EQ(events[8]["ph"], "f");
  EXPECT_EQ(events[8]["bp"], "e");
}

TEST(Kineto, NamesTheLineOfTheModelThatACallIsFrom) {
  SessionBuilder builder = smallest_session();
  EXPECT_THAT(kineto_json(builder.build()), ::testing::Not(HasSubstr("\"source\"")));
  builder.raw().program["calls"][0]["source"] = "models/\"net\".cpp:4";
  EXPECT_THAT(kineto_json(builder.build()),
              HasSubstr(R"("Input type": ["c10::Half"], "source": "models/\"net\".cpp:4")"));
}

TEST(Kineto, HasTheGpusCounters) {
  const Json trace =
      Json::parse(kineto_json(device_session(1).sample("gpu 0 DRAM %", 1501, 42.5).build()));
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "C" && event["name"] == "gpu 0 DRAM %") found.push_back(event);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["ts"], 1501.0);
  EXPECT_EQ(found[0]["args"].front(), 42.5);
}

TEST(Kineto, TheSameSessionGivesTheSameBytes) {
  const Session session = device_session().build();
  EXPECT_EQ(kineto_json(session), kineto_json(session));
  EXPECT_EQ(gzipped(kineto_json(session)), gzipped(kineto_json(session)));
}

TEST(Kineto, NamesItsFileForTheDistributedViews) {
  EXPECT_EQ(kineto_name(smallest_session().build()),
            "train_4242.1700000000000000000.pt.trace.json.gz");
}

TEST(Kineto, SaysWhichOfHowManyRanksItIsOf) {
  Session session = smallest_session().build();
  session.stamp["rank"] = 3;
  session.stamp["ranks"] = 8;
  EXPECT_THAT(kineto_json(session), HasSubstr(R"("rank": 3, "world_size": 8})"));
}

TEST(Kineto, AnEmptySessionIsStillATrace) {
  const Json trace = Json::parse(kineto_json(Session{}));
  EXPECT_TRUE(trace["traceEvents"].is_array());
}

TEST(Gzip, UnpacksToWhatItWas) {
  const std::string text = kineto_json(device_session().build());
  const std::string packed = gzipped(text);
  EXPECT_LT(packed.size(), text.size() / 4);
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0')) << "a time stamp";
  const std::filesystem::path path = testing::own_folder() / "trace.json.gz";
  write_atomically(path, packed);
  std::string unpacked(text.size() + 1, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  const int read = gzread(file, unpacked.data(), static_cast<unsigned>(unpacked.size()));
  gzclose(file);
  unpacked.resize(static_cast<std::size_t>(std::max(read, 0)));
  EXPECT_EQ(unpacked, text);
  EXPECT_FALSE(gzipped("").empty());
}

TEST(TraceFile, ReadsPackedAndPlainTextAndSaysWhatIsDamaged) {
  const std::filesystem::path path = testing::own_folder() / "some.json";
  const std::string text(100'000, 'x'), packed = gzipped(text);
  const auto read = [&](std::string_view content, std::uint64_t max_bytes) {
    write_atomically(path, content);
    return read_trace_text(path, max_bytes);
  };
  EXPECT_EQ(read(text, 1 << 20), text);
  EXPECT_EQ(read(packed, 1 << 20), text);
  EXPECT_EQ(read("", 1 << 20), "");
  EXPECT_THROW(read(packed, 99'999), DataError) << "a small file that unpacks to a large one";
  EXPECT_THROW(read(packed.substr(0, packed.size() - 9), 1 << 20), DataError);
  EXPECT_THROW(read(packed.substr(0, packed.size() / 2), 1 << 20), DataError);
  std::string damaged = packed;
  char& of_checksum = damaged[packed.size() - 6];
  of_checksum = static_cast<char>(of_checksum ^ 1);
  EXPECT_THROW(read(damaged, 1 << 20), DataError);
  EXPECT_THROW(read_trace_text("/nonexistent.json"), DataError);
}

// The sessions that tests/peers/profiler_traces.py opens in other programs, in the folder that the
// environment variable names.
TEST(Kineto, AFileGivesTheTraceThatTheSessionGave) {
  const char* const asked = std::getenv("WARPSTEP_PEER_SESSIONS");
  const std::filesystem::path folder =
      asked != nullptr ? asked : testing::own_folder() / "kineto_test";
  const auto write = [&](const char* name, const Session& session) {
    std::filesystem::create_directories(folder / name);
    const std::filesystem::path path = folder / name / "session.prof";
    SessionWriter(path).write(session);
    EXPECT_EQ(kineto_json(read_session(path)), kineto_json(session));
  };
  write("device", device_session().build());
  write("host", host_session().build());
}

}  // namespace

// A graph's launch in a Kineto trace: CUPTI gives all its kernels one correlation, readers want one
// for each.

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

// What each reader of Kineto traces asks for, one test a rule, on sessions that make it hard.

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;

TEST(KinetoRules, NoStepIsEverOnADevice) {
  EXPECT_THAT(of_category(events_of(device_session().build()), "gpu_user_annotation"), IsEmpty());
}

TEST(KinetoRules, StepsAreThoseOfCompleteWindows) {
  SessionBuilder builder = host_session(4);
  builder.raw().windows[0].last_step = 2;
  builder.raw().windows.push_back({3, 4, SessionBuilder::at(3000), SessionBuilder::at(5000), 0, 0});
  const auto names = names_of(of_category(events_of(builder.build()), "user_annotation"));
  EXPECT_EQ(std::count(names.begin(), names.end(), "ProfilerStep#1"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "ProfilerStep#2"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "ProfilerStep#3"), 0);
  SessionBuilder steps_alone;
  steps_alone.step(1, 0, 10).step(2, 10, 20);
  EXPECT_THAT(names_of(of_category(events_of(steps_alone.build()), "user_annotation")),
              ElementsAre("ProfilerStep#1", "ProfilerStep#2"));
}

// ts and dur are added as doubles by those who read them.
TEST(KinetoRules, StepsThatTouchDoNotOverlap) {
  SessionBuilder builder;
  std::uint64_t at = SessionBuilder::origin_ns + 4'576'655'297'123;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    builder.step(i, 0, 0);
    Step& step = builder.raw().steps.back();
    step.begin_ns = at;
    at += 109'270'691 + i * 7'654'321;
    step.end_ns = at;
    step.other_ns = step.end_ns - step.begin_ns;
  }
  double end = 0;
  for (const Json& step : of_category(events_of(builder.build()), "user_annotation")) {
    EXPECT_GE(step["ts"].get<double>(), end);
    end = step["ts"].get<double>() + step["dur"].get<double>();
  }
  EXPECT_GT(end, 0);
}

TEST(KinetoRules, WhatLoadersDoIsNoAnnotation) {
  for (const Json& event : events_of(device_session().build()))
    if (event["ph"] == "X" && event["pid"] == 4242 && event["tid"] != 4242) {
      EXPECT_EQ(event["cat"], "loader") << event;
    }
}

TEST(KinetoRules, AHostThatComputesHasOpsAlone) {
  const auto events = events_of(host_session(1).build());
  EXPECT_THAT(names_of(of_category(events, "cpu_op")),
              ElementsAre("enumerate(DataLoader)#Warpstep.__next__", "conv1.forward", "update"));
  for (const char* category : {"kernel", "cuda_runtime", "gpu_memcpy"})
    EXPECT_THAT(of_category(events, category), IsEmpty());
}

TEST(KinetoRules, ADriversRecordOfALaunchGivesWayToTheRuntimes) {
  for (const bool driver_first : {true, false}) {
    SessionBuilder builder;
    builder.gpu().launch(10, 20, What::kernel, "k", 30, 40);
    const Activity& api = builder.raw().activities[0];
    Activity driver = api;
    driver.start_ns = driver_first ? api.start_ns - 1 : api.start_ns + 1;
    driver.end_ns = api.end_ns - 1;
    builder.activity(driver, Kind::host_api, "cuLaunchKernel");
    const auto events = events_of(builder.build());
    EXPECT_THAT(names_of(of_category(events, "cuda_runtime")), ElementsAre("cudaLaunchKernel"));
    EXPECT_THAT(of_category(events, "cuda_driver"), IsEmpty());
  }
}

TEST(KinetoRules, ALaunchByTheDriverAloneIsWrittenAsTheRuntimes) {
  SessionBuilder builder;
  builder.gpu().launch(10, 20, What::kernel, "k", 30, 40);
  builder.raw().activities[0].name = builder.name(Kind::host_api, "cuLaunchKernel");
  const auto events = events_of(builder.build());
  EXPECT_THAT(names_of(of_category(events, "cuda_runtime")), ElementsAre("cuLaunchKernel"));
}

TEST(KinetoRules, TheLegacyStreamIs7) {
  SessionBuilder builder;
  builder.gpu().launch(10, 20, What::kernel, "k", 30, 40, 0);
  const auto kernels = of_category(events_of(builder.build()), "kernel");
  EXPECT_EQ(kernels[0]["tid"], 7);
  EXPECT_EQ(kernels[0]["args"]["stream"], 7);
}

// Above 48 KiB of shared memory a block, where Kineto itself says 0 %.
TEST(KinetoRules, KernelsThatOptIntoSharedMemoryHaveAnOccupancy) {
  SessionBuilder builder;
  builder.gpu().launch(10, 20, What::kernel, "k", 30, 40);
  set_launch(builder.last_activity(), 132, 128);
  builder.last_activity().registers = 168;
  builder.last_activity().smem_dynamic = 200 * 1024;
  const Json kernel = of_category(events_of(builder.build()), "kernel")[0];
  EXPECT_EQ(kernel["args"]["est. achieved occupancy %"], 6);  // 128 of 2048 threads
  EXPECT_EQ(kernel["args"]["shared memory"], 200 * 1024);
}

TEST(KinetoRules, WhatOverlapsOnAStreamGetsLanes) {
  const auto events = events_of(device_session(1).build());
  std::set<std::string> tracks;
  std::map<std::int64_t, std::int64_t> end_of_track;
  for (const Json& event : events) {
    if (event["ph"] == "M" && event["name"] == "thread_name" && event["pid"] == 0)
      tracks.insert(event["args"]["name"]);
    if (event["ph"] != "X" || event["pid"] != 0) continue;
    EXPECT_GE(ns(event["ts"]), end_of_track[event["tid"]]) << event;
    end_of_track[event["tid"]] = ns(event["ts"]) + ns(event["dur"]);
    EXPECT_EQ(event["args"]["stream"], event["tid"]);
  }
  EXPECT_THAT(tracks, ElementsAre("stream 13", "stream 7", "stream 7 (2)"));
}

// The device's source has another clock than the host's spans.
TEST(KinetoRules, ALaunchThatSeemsToOutliveItsCallIsStillOfIt) {
  SessionBuilder builder;
  builder.gpu()
      .span(Kind::call, "conv1", 0, 100, 0, 0)
      .launch(90, 100.5, What::kernel, "k", 120, 130);
  const auto events = events_of(builder.build());
  EXPECT_EQ(of_category(events, "kernel")[0]["args"]["External id"],
            of_category(events, "cpu_op")[0]["args"]["External id"]);
}

TEST(KinetoRules, WhatCrossesOnAThreadGetsALane) {
  SessionBuilder builder = host_session(2);
  builder.span(Kind::range, "a", 1100, 1300).span(Kind::range, "b", 1250, 1400);
  EXPECT_THAT(check_kineto(kineto_json(builder.build())), IsEmpty());
}

TEST(KinetoRules, NothingTakesNoTime) {
  SessionBuilder builder = host_session(2);
  builder.span(Kind::call, "empty", 1900, 1900, 0, 1);
  const auto events = events_of(builder.build());
  for (const Json& event : events)
    if (event["ph"] == "X") {
      EXPECT_GT(event["dur"], 0.0) << event;
    }
}

// CUPTI may lose a launch's record, and with full buffers gives records without times.
TEST(KinetoRules, WorkWithoutALaunchGetsOneAndWorkWithoutTimesIsLeftOut) {
  SessionBuilder builder = device_session(2);
  Activity lost = builder.last_activity();
  lost.correlation = 0;
  lost.start_ns = SessionBuilder::at(2980);
  lost.end_ns = SessionBuilder::at(2990);
  builder.activity(lost, Kind::kernel, "lost");
  lost.correlation = 777;
  lost.start_ns = 0;
  builder.activity(lost, Kind::kernel, "timeless");
  const std::string json = kineto_json(builder.build());
  EXPECT_THAT(check_kineto(json), IsEmpty());
  EXPECT_NE(json.find("\"lost\""), std::string::npos);
  EXPECT_EQ(json.find("\"timeless\""), std::string::npos);
}

TEST(KinetoRules, NumbersAreExactToTheNanosecond) {
  SessionBuilder builder;
  builder.span(Kind::range, "a", 0, 1).span(Kind::range, "late", 0, 0);
  Span& late = builder.raw().spans.back();
  late.begin_ns = SessionBuilder::origin_ns + 123'456'789'012'345;
  late.end_ns = late.begin_ns + 1'000'001;
  EXPECT_NE(kineto_json(builder.build()).find("\"ts\": 123456789012.345, \"dur\": 1000.001"),
            std::string::npos);
}

TEST(KinetoRules, EventsComeByTime) {
  double last = 0;
  for (const Json& event : events_of(device_session().build())) {
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"];
  }
  EXPECT_GT(last, 4000);
}

TEST(KinetoRules, TheProcessIsNoDevice) {
  SessionBuilder builder = device_session(2);
  builder.raw().stamp["profiler"] = {{"pid", 0U}};
  const Json trace = Json::parse(kineto_json(builder.build()));
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "cpu_op") {
      EXPECT_NE(event["pid"], 0);
    }
}

TEST(KinetoRules, AnyBytesInNamesGiveJson) {
  SessionBuilder builder = host_session(2);
  builder.span(Kind::range, "a\"b\\c\n\xff", 1000, 1001);
  builder.raw().stamp = {{"nested", {{"text", "\xfe"}}}};
  EXPECT_THAT(check_kineto(kineto_json(builder.build())), IsEmpty());
}

TEST(KinetoRules, TheProcessIsTheStamps) {
  SessionBuilder builder = device_session(2);
  builder.raw().stamp["profiler"] = {{"pid", 4200}};
  EXPECT_EQ(kineto_name(builder.build()), "train_4200.1700000000000000000.pt.trace.json.gz");
}

TEST(KinetoRules, CountersAndMarksAreShown) {
  SessionBuilder builder = device_session(1);
  builder.span(Kind::counter, "worker cpu ns", 1190, 1190, 1, 55)
      .span(Kind::counter, "worker cpu ns", 1190, 1190, 2, 66);
  std::map<std::string, Json> found;
  for (const Json& event : events_of(builder.build()))
    if (event["ph"] == "C" || event["ph"] == "i") found[event["name"]] = event;
  EXPECT_EQ(found["cpu %"]["args"]["value"], 73.5);
  EXPECT_EQ(found["process rss bytes"]["args"]["value"], 123456789);
  EXPECT_EQ(found["batches ready"]["args"]["value"], 1);
  EXPECT_EQ(found["batch ready"]["tid"], 4302);
  EXPECT_EQ(found["loader 0: worker cpu ns"]["args"]["value"], 55);
  EXPECT_EQ(found["loader 1: worker cpu ns"]["args"]["value"], 66);
}

}  // namespace
}  // namespace warpstep::profiler
