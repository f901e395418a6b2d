#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "profiler/export/export.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using namespace testing;

// The opcodes that the writer uses, back into JSON.
Json unpickled(std::string_view pickle) {
  const auto number = [&pickle](std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(pickle.at(i));
    pickle.remove_prefix(bytes);
    return value;
  };
  std::vector<Json> stack;
  std::vector<std::size_t> marks;
  EXPECT_EQ(pickle.substr(0, 2), "\x80\x02");
  pickle.remove_prefix(2);
  while (!pickle.empty()) {
    const char opcode = pickle[0];
    pickle.remove_prefix(1);
    if (opcode == '}') stack.emplace_back(Json::object());
    if (opcode == ']') stack.emplace_back(Json::array());
    if (opcode == '(') marks.push_back(stack.size());
    if (opcode == '\x88' || opcode == '\x89') stack.emplace_back(opcode == '\x88');
    if (opcode == 'K') stack.emplace_back(number(1));
    if (opcode == 'M') stack.emplace_back(number(2));
    if (opcode == 'J') stack.emplace_back(number(4));
    if (opcode == '\x8a') stack.emplace_back(number(number(1)));
    if (opcode == 'X') {
      const std::size_t bytes = number(4);
      stack.emplace_back(std::string(pickle.substr(0, bytes)));
      pickle.remove_prefix(bytes);
    }
    if (opcode == 'u' || opcode == 'e') {
      const std::size_t first = marks.back();
      Json& target = stack[first - 1];
      for (std::size_t i = first; i < stack.size(); i += opcode == 'u' ? 2 : 1)
        if (opcode == 'u')
          target[stack[i].get<std::string>()] = stack.at(i + 1);
        else
          target.push_back(stack[i]);
      stack.resize(first);
      marks.pop_back();
    }
    if (opcode == '.') break;
  }
  EXPECT_EQ(stack.size(), 1U);
  return stack.at(0);
}

Session planned_session() {
  SessionBuilder builder = host_session(1);
  const auto buffer = [](const char* name, int offset, int bytes, int first, int last) {
    return Json{{"name", name},   {"kind", "activation"}, {"layer", "conv1"}, {"offset", offset},
                {"bytes", bytes}, {"first_call", first},  {"last_call", last}};
  };
  builder.raw().program["memory"] = {
      {"arena_bytes", 300},
      {"buffers",
       {buffer("a", 0, 100, 1, 1), buffer("b\xff", 100, 200, 1, 2), buffer("c", 0, 100, 2, 2)}},
      {"persistent",
       {{{"name", "weight"}, {"kind", "parameter"}, {"layer", "conv1"}, {"bytes", 40}}}}};
  return builder.build();
}

TEST(MemorySnapshot, HasEachBufferFromItsFirstCallToItsLast) {
  const Json snapshot = unpickled(memory_snapshot(planned_session()));
  std::string events;
  std::uint64_t live = 0, most = 0;
  for (const Json& event : snapshot["device_traces"][0]) {
    const std::string action = event["action"];
    if (action == "segment_alloc" || action == "free_requested") continue;
    const auto bytes = event["size"].get<std::uint64_t>();
    live = action == "alloc" ? live + bytes : live - bytes;
    most = std::max(most, live);
    events += (action == "alloc" ? "+" : "-") +
              event["frames"][0]["name"].get<std::string>().substr(0, 1) +
              std::to_string(event["time_us"].get<int>()) + " ";
  }
  EXPECT_EQ(events, "+w0 +a1 +b1 -a2 +c2 -b3 -c3 ");
  EXPECT_EQ(most, 340U);
  EXPECT_EQ(live, 40U);
}

TEST(MemorySnapshot, SegmentsAreTheArenaAndWhatStays) {
  const Json segments = unpickled(memory_snapshot(planned_session()))["segments"];
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0]["blocks"][0]["frames"][0]["filename"], "parameter of conv1");
  EXPECT_EQ(segments[0]["blocks"][0]["state"], "active_allocated");
  EXPECT_EQ(segments[1]["total_size"], 300);
  EXPECT_EQ(segments[1]["active_size"], 0);
}

TEST(MemorySnapshot, ASessionWithoutAPlanHasAnEmptyOne) {
  EXPECT_EQ(unpickled(memory_snapshot(Session{}))["device_traces"], Json::array({Json::array()}));
}

}  // namespace
}  // namespace warpstep::profiler
