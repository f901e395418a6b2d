#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <set>
#include <string>

#include "engine/core/error.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;

std::string sound() {
  return kineto_json(device_session().build());
}

// The first event of a category whose name begins so.
Json& event(Json& trace, std::string_view category, std::string_view name = "") {
  for (Json& candidate : trace["traceEvents"])
    if (candidate.value("cat", "") == category &&
        candidate["name"].get<std::string>().starts_with(name))
      return candidate;
  throw std::runtime_error("no event " + std::string(category));
}

// What the checker says after `change`; nlohmann writes "rank":0 without a space unless it indents.
std::vector<std::string> after(const std::function<void(Json&)>& change) {
  Json trace = Json::parse(sound());
  change(trace);
  return check_kineto(trace.dump(1));
}

TEST(CheckKineto, OurOwnTracesAreSound) {
  EXPECT_THAT(check_kineto(sound()), IsEmpty());
  EXPECT_THAT(check_kineto(kineto_json(host_session().build())), IsEmpty());
  EXPECT_THAT(after([](Json&) {}), IsEmpty());
}

struct Fault {
  const char* name;
  std::function<void(Json&)> plant;
  const char* sentence;  // a part of it
};

class PlantedFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, IsFoundAlone) {
  EXPECT_THAT(after(GetParam().plant), ElementsAre(HasSubstr(GetParam().sentence)));
}

const Json& args_of(Json& trace, const char* category) {
  return event(trace, category)["args"];
}

const std::vector<Fault> faults{
    Fault{"NoTimes", [](Json& t) { event(t, "loader").erase("dur"); }, "has no times"},
    Fault{"NegativeLength", [](Json& t) { event(t, "loader")["dur"] = -1; }, "has no times"},
    Fault{"NoCategory", [](Json& t) { event(t, "loader").erase("cat"); }, "has no category"},
    Fault{"NoTrack", [](Json& t) { event(t, "loader").erase("tid"); }, "no process or thread"},
    Fault{"NoName", [](Json& t) { event(t, "loader").erase("name"); }, "has no name"},
    Fault{"NoPhase", [](Json& t) { event(t, "loader").erase("ph"); }, "has no phase"},
    Fault{"NoObject", [](Json& t) { t["traceEvents"].push_back(7); }, "is not an object"},
    Fault{"AbsoluteTimes", [](Json& t) { event(t, "loader")["ts"] = 1'700'000'000'000'000.25; },
          "cannot hold to the nanosecond"},
    Fault{"DeviceStep",
          [](Json& t) {
            Json step = event(t, "user_annotation", "ProfilerStep");
            step["cat"] = "gpu_user_annotation";
            step["pid"] = 0;
            step["tid"] = 99;
            t["traceEvents"].push_back(step);
          },
          "counts every step twice"},
    Fault{"StepWithoutNumber",
          [](Json& t) { event(t, "user_annotation", "ProfilerStep")["name"] = "ProfilerStep#x"; },
          "has no number"},
    Fault{"StepsOverlap",
          [](Json& t) {
            Json step = event(t, "user_annotation", "ProfilerStep");
            step["name"] = "ProfilerStep#77";
            t["traceEvents"].push_back(step);
          },
          "begins before"},
    Fault{"LoaderAnnotation", [](Json& t) { event(t, "loader")["cat"] = "user_annotation"; },
          "a loader's thread"},
    Fault{"Elsewhere",
          [](Json& t) {
            event(t, "kernel")["args"]["device"] = 1;
            t["deviceProperties"].push_back({{"id", 1}});
          },
          "but its pid is not"},
    Fault{"ManyDevices",
          [](Json& t) {
            event(t, "kernel")["args"]["device"] = 64;
            event(t, "kernel")["pid"] = 64;
            t["deviceProperties"].push_back({{"id", 64}});
          },
          "knows 0 to 63"},
    Fault{"NoDevice", [](Json& t) { event(t, "kernel")["args"].erase("device"); },
          "does not say its device"},
    Fault{"Undescribed", [](Json& t) { t.erase("deviceProperties"); },
          "deviceProperties does not describe"},
    Fault{"NoStream", [](Json& t) { event(t, "kernel")["args"]["stream"] = -1; },
          "no stream of 0 or more"},
    Fault{"Stream0", [](Json& t) { event(t, "kernel")["args"]["stream"] = 0; }, "stream 0"},
    Fault{"NoCorrelation", [](Json& t) { event(t, "kernel")["args"].erase("correlation"); },
          "has no correlation"},
    Fault{"NoLaunch",
          [](Json& t) {
            const Json correlation = args_of(t, "kernel")["correlation"];
            for (Json& e : t["traceEvents"])
              if (e.value("cat", "") == "cuda_runtime" && e["args"]["correlation"] == correlation)
                e["args"]["correlation"] = 999999;
          },
          "which no launch has"},
    Fault{"DriverOnly",
          [](Json& t) { event(t, "cuda_runtime", "cudaMemcpy")["cat"] = "cuda_driver"; },
          "cuda_driver alone"},
    Fault{"TwoLaunches",
          [](Json& t) {
            Json launch = event(t, "cuda_runtime", "cudaMemcpy");
            launch["cat"] = "cuda_driver";
            t["traceEvents"].push_back(launch);
          },
          "has 2 launches"},
    Fault{"SharedCorrelation",
          [](Json& t) {
            Json kernel = event(t, "kernel");
            kernel["ts"] = 900'000;
            t["traceEvents"].push_back(kernel);
          },
          "shares the correlation"},
    Fault{"BeforeItsLaunch", [](Json& t) { event(t, "gpu_memcpy")["ts"] = 1.5; },
          "begins before its launch"},
    Fault{"RepeatedExternalId",
          [](Json& t) {
            event(t, "cpu_op", "conv1")["args"]["External id"] =
                event(t, "cpu_op", "upload")["args"]["External id"];
          },
          "has the External id of"},
    Fault{"ArrowWithoutEnd",
          [](Json& t) {
            Json arrow = event(t, "ac2g");
            arrow["id"] = 123456;
            t["traceEvents"].push_back(arrow);
          },
          "ends nowhere"},
    Fault{"ArrowWithoutStart",
          [](Json& t) {
            Json arrow = event(t, "ac2g");
            arrow["id"] = 123456;
            arrow["ph"] = "f";
            arrow["bp"] = "e";
            t["traceEvents"].push_back(arrow);
          },
          "starts nowhere"},
    Fault{"ArrowUnbound",
          [](Json& t) {
            for (Json& e : t["traceEvents"]) e.erase("bp");
          },
          "lacks \"bp\": \"e\""},
    Fault{"BadArrow",
          [](Json& t) {
            t["traceEvents"].push_back({{"ph", "s"}, {"cat", "ac2g"}, {"name", "ac2g"}});
          },
          "an arrow without a time or a number"},
    Fault{"NoLength", [](Json& t) { event(t, "loader", "read")["dur"] = 0; }, "takes no time"},
    Fault{"Crossing", [](Json& t) { event(t, "loader", "read")["dur"] = 50; },
          "and ends after it"}};

INSTANTIATE_TEST_SUITE_P(CheckKineto, PlantedFault, ::testing::ValuesIn(faults),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(CheckKineto, WantsTwoSteps) {
  EXPECT_THAT(check_kineto(kineto_json(smallest_session().build())),
              ElementsAre(HasSubstr("There is one step")));
  EXPECT_THAT(check_kineto(kineto_json(Session{})), ElementsAre(HasSubstr("There is no step")));
}

TEST(CheckKineto, WantsASpaceBeforeTheRank) {
  EXPECT_THAT(check_kineto(Json::parse(sound()).dump()),
              ElementsAre(HasSubstr("reads every rank as 0")));
}

TEST(CheckKineto, CountsWhatIsAlike) {
  const auto found = after([](Json& t) {
    for (Json& e : t["traceEvents"])
      if (e.value("cat", "") == "gpu_memcpy") e["args"]["stream"] = 0;
  });
  EXPECT_THAT(found, ElementsAre(HasSubstr("(So are 3 more.)")));
}

TEST(CheckKineto, SaysWhatIsNoTrace) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "ends after byte 0, within its JSON; copy it again"},
           {"{\"traceEvents\": [", "ends after byte 17, within its JSON; copy it again"},
           {"{\"traceEvents\": [}", "byte 18: is not JSON; copy it again"},
           {"{\"a\": \"\xff\"}", "byte 8: is not JSON; copy it again"},
           {std::string("[]\0x", 4), "byte 3: is not JSON; copy it again"},
           {"{\"traceEvents\": [{}, {\"ts\": 1e999}]}",
            "a number after event 1 is out of range; copy it again"}})
    EXPECT_THAT([&] { check_kineto(text); }, ::testing::ThrowsMessage<DataError>(message));
  EXPECT_THAT(check_kineto("{}"), ::testing::Contains(HasSubstr("no list traceEvents")));
  EXPECT_THAT(check_kineto("7"), ::testing::Contains(HasSubstr("no list traceEvents")));
  EXPECT_THAT(check_kineto("null"), ::testing::Contains(HasSubstr("no list traceEvents")));
  EXPECT_THAT(check_kineto("{\"traceEvents\": {\"a\": {\"ph\": 1}}}"),
              ::testing::Contains(HasSubstr("no list traceEvents")));
  EXPECT_THAT(check_kineto("[{\"ph\": \"i\", \"name\": \"x\"}]"),
              ElementsAre(HasSubstr("is a list of events"), HasSubstr("no step")));
}

// Every member of every kind of event in turn becomes every kind of value.
TEST(CheckKineto, AnyTypeAnywhereGivesSentences) {
  const std::vector<Json> values{nullptr,
                                 true,
                                 -1,
                                 1e300,
                                 -1e300,
                                 UINT64_MAX,
                                 INT64_MIN,
                                 "text",
                                 "",
                                 Json::array(),
                                 Json::array({{}}),
                                 Json::object(),
                                 {{"name", 1}},
                                 {{"rank", "x"}}};
  const Json trace = Json::parse(kineto_json(device_session(1).build()));
  std::size_t tried = 0;
  std::set<std::string> kinds;  // phase, category and members
  const auto try_all = [&](const std::function<Json&(Json&)>& place) {
    for (const Json& value : values) {
      Json changed = trace;
      place(changed) = value;
      for (const std::string& sentence : check_kineto(changed.dump(1)))
        EXPECT_THAT(sentence, ::testing::AnyOf(::testing::EndsWith("."), ::testing::EndsWith(")")));
      ++tried;
    }
  };
  for (const auto& top : trace.items())
    try_all([&](Json& changed) -> Json& { return changed[top.key()]; });
  for (std::size_t i = 0; i < trace["traceEvents"].size(); ++i) {
    const Json& event = trace["traceEvents"][i];
    std::string kind = event.value("ph", "") + event.value("cat", "");
    for (const auto& item : event.items()) kind += " " + item.key();
    if (event.contains("args"))
      for (const auto& item : event["args"].items()) kind += " " + item.key();
    if (!kinds.insert(kind).second) continue;
    try_all([&](Json& changed) -> Json& { return changed["traceEvents"][i]; });
    for (const auto& item : event.items())
      try_all([&](Json& changed) -> Json& { return changed["traceEvents"][i][item.key()]; });
    if (event.contains("args"))
      for (const auto& item : event["args"].items())
        try_all(
            [&](Json& changed) -> Json& { return changed["traceEvents"][i]["args"][item.key()]; });
  }
  EXPECT_GT(tried, 2000U);
}

TEST(CheckKineto, DeepNestingAndLongNamesAreNoDanger) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string long_name(100'000, 'x');
  const auto found =
      check_kineto("{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"" + long_name +
                   "\", \"cat\": \"kernel\", \"ts\": 1, \"dur\": 0, \"pid\": " + deep +
                   ", \"tid\": " + deep + "}]}");
  EXPECT_THAT(found, SizeIs(::testing::Ge(4U)));
  for (const std::string& sentence : found) EXPECT_LT(sentence.size(), 400U);
}

// The parser looks through a list again after each object of it, unless the list is not kept: each
// of these took a minute.
TEST(CheckKineto, LongListsAnywhereAreReadOnce) {
  std::string objects = "{}", keys = "\"k\": {}";
  for (int i = 1; i < 50'000; ++i) {
    objects += ",{}";
    keys += fmt::format(",\"k{}\": {{}}", i);
  }
  const std::string event = R"({"ph": "i", "name": "x", )";
  for (const std::string& text :
       {R"({"other": [)" + objects + "]}", R"({"other": {)" + keys + "}}", "{" + keys + "}",
        R"({"distributedInfo": {"rank": [)" + objects + "]}}",
        R"({"distributedInfo": [)" + objects + "]}", R"({"deviceProperties": [)" + objects + "]}",
        R"({"deviceProperties": [{"id": [)" + objects + "]}]}",
        R"({"traceEvents": {"a": [)" + objects + "]}}",
        R"({"traceEvents": [)" + event + R"("args": {"device": [)" + objects + "]}}]}",
        R"({"traceEvents": [)" + event + R"("args": {)" + keys + "}}]}",
        R"({"traceEvents": [)" + event + R"("pid": [)" + objects + "]}]}",
        R"([)" + event + keys + "}]", "[[" + objects + "]]"})
    EXPECT_THAT(check_kineto(text), ::testing::Not(IsEmpty())) << text.substr(0, 60);
}

TEST(CheckKineto, ReadsOnlyWhatItUsesOfATrace) {
  EXPECT_THAT(after([](Json& t) {
                Json more = {{"args", {{"stream", 99}}}, {"rank", 9}};
                more["id"] = {1, 2};
                for (Json& e : t["traceEvents"]) e["extra"] = more;
                for (Json& d : t["deviceProperties"]) d["extra"] = more;
                t["more"] = {{"traceEvents", {1}}, {"deviceProperties", {{{"id", 5}}}}};
                t["distributedInfo"]["extra"] = more;
              }),
              IsEmpty());
}

}  // namespace
}  // namespace warpstep::profiler
