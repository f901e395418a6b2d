// What each reader of Kineto traces asks for, one test a rule, on sessions that make it hard.
#include <gmock/gmock.h>

#include <algorithm>
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
  EXPECT_THAT(names_of(of_category(events, "cpu_op")), ElementsAre("conv1.forward", "update"));
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
