#include <gmock/gmock.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_sessions.h"
#include "profiler/export/trace_file.h"
#include "profiler/session/session_writer.h"
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
}  // namespace warpstep::profiler
