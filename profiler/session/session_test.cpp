#include "profiler/session/session.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/session/session_file.h"
#include "profiler/session/testing_builder.h"
#include "profiler/sources/testing_tree.h"

namespace {
int close_error = 0;  // errno of the next call of close(), once
}  // namespace

// Replaces the C library's function, also in the library under test.
extern "C" int close(int descriptor) {
  const auto result = static_cast<int>(::syscall(SYS_close, descriptor));
  if (close_error == 0) return result;
  errno = std::exchange(close_error, 0);
  return -1;
}

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using testing::SessionBuilder;

std::filesystem::path temporary(const std::string& name) {
  return testing::own_folder() / name;
}

Session sample_session() {
  SessionBuilder builder;
  builder.gpu()
      .thread(4301, "loader 0")
      .step(1, 0, 900, 300, 200, 70)
      .step(2, 1000, 1900, 300, 200, 70)
      .window(1, 2, 0, 1900, true)
      .span(Kind::call, "conv1", 260, 360, 0, 3)
      .span(Kind::stage, "decode", 20, 170, 1)
      .launch(300, 320, What::kernel, "sm90_gemm", 340, 540)
      .sample("cpu %", 500, 73.5);
  builder.raw().stamp = {{"seed", 7}};
  builder.raw().notes = {"one note"};
  builder.raw().clocks.push_back({1, 2, 3, 4});
  builder.raw().losses.entries = 3;
  return builder.build();
}

std::string file_of(const Session& session) {
  const std::filesystem::path path = temporary("session_test.prof");
  SessionWriter(path).write(session);
  return read_file(path);
}

TEST(SessionFile, HoldsEverything) {
  const Session before = sample_session();
  const Session after = parse_session(file_of(before), "test");
  EXPECT_EQ(after.stamp, before.stamp);
  EXPECT_EQ(after.notes, before.notes);
  ASSERT_EQ(after.names.size(), before.names.size());
  ASSERT_EQ(after.steps.size(), 2U);
  EXPECT_EQ(after.steps[1].end_ns, SessionBuilder::at(1900));
  ASSERT_EQ(after.spans.size(), 2U);
  EXPECT_EQ(after.name(after.spans[0].name), "conv1");
  EXPECT_EQ(after.kind(after.spans[0]), Kind::call);
  EXPECT_EQ(after.spans[0].arg, 3U);
  ASSERT_EQ(after.activities.size(), 2U);
  EXPECT_EQ(after.name(after.activities[1].name), "sm90_gemm");
  EXPECT_EQ(after.activities[0].correlation, after.activities[1].correlation);
  EXPECT_EQ(after.threads[1].name, "loader 0");
  EXPECT_EQ(after.samples[0].value, 73.5);
  EXPECT_EQ(after.windows[0].deep, 1U);
  EXPECT_EQ(after.devices[0].multiprocessors, 132U);
  EXPECT_EQ(after.losses.entries, 3U);
  EXPECT_EQ(after.losses.cut_bytes, 0U);
}

// A killed process may leave any prefix of its file.
TEST(SessionFile, ReadsEveryPrefixUpToTheLastWholeChunk) {
  const std::string whole = file_of(sample_session());
  std::size_t steps = 0;
  for (std::size_t size = 60; size < whole.size(); ++size) {
    const Session session = parse_session(std::string_view(whole).substr(0, size), "test");
    EXPECT_LT(session.losses.cut_bytes, whole.size());
    EXPECT_GE(session.steps.size(), steps) << size;
    steps = session.steps.size();
  }
  EXPECT_EQ(steps, 2U);
}

// The chunks of a file, in order.
std::vector<std::pair<Chunk, std::string>> chunks_of(const std::string& file) {
  std::vector<std::pair<Chunk, std::string>> chunks;
  ChunkHeader header;
  for (std::size_t at = 0; at < file.size(); at += sizeof header + header.bytes) {
    std::memcpy(&header, file.data() + at, sizeof header);
    chunks.emplace_back(static_cast<Chunk>(header.type),
                        file.substr(at, sizeof header + header.bytes));
  }
  return chunks;
}

// A step of 100 us with a span each.
Step step_of(std::uint64_t number) {
  return {.step = number,
          .epoch = 1,
          .begin_ns = number * 100'000,
          .end_ns = (number + 1) * 100'000,
          .other_ns = 100'000};
}
Span span_of(std::uint64_t number) {
  return {.begin_ns = number * 100'000 + 10, .end_ns = number * 100'000 + 90, .arg = number};
}

// What a run writes that is killed in its window: steps 3 and 4 with their spans, then step 5.
std::string cut_in_a_window(std::uint64_t deep, bool is_closed = false, bool is_second = false) {
  const std::filesystem::path path = temporary("cut.prof");
  {
    SessionWriter writer(path);
    writer.write_list(Chunk::names, 0, Json::array({Json::array({"conv", 0})}));
    writer.write_list(Chunk::threads, 0, Json::array({Json::array({1, "main"})}));
    writer.write(Chunk::steps, std::vector{step_of(1), step_of(2), step_of(3)});
    if (is_second) {  // the first one ends with step 2
      writer.write(Chunk::spans, std::vector{span_of(2)});
      writer.write(
          Chunk::activities,
          std::vector{Activity{.start_ns = 200'000, .end_ns = 210'000, .what = What::api}});
      writer.write(Chunk::windows, std::vector{Window{2, 2, 200'000, 300'000, 1, 1}});
    }
    writer.write(Chunk::opened, std::vector{Window{3, 3, 300'000, 300'000, deep, 0}});
    writer.write(Chunk::spans, std::vector{span_of(3)});
    writer.write(Chunk::steps, std::vector{step_of(4)});
    writer.write(Chunk::spans, std::vector{span_of(4)});
    writer.write(Chunk::steps, std::vector{step_of(5)});
    if (is_closed)
      writer.write(Chunk::windows, std::vector{Window{3, 5, 300'000, 600'000, deep, 1}});
  }
  return read_file(path);
}

TEST(SessionFile, CutsAWindowThatWasOpenAfterItsLastWholeStep) {
  const Session read = parse_session(cut_in_a_window(0), "test");
  ASSERT_EQ(read.windows.size(), 1U);
  const Window& window = read.windows[0];
  EXPECT_EQ(window.first_step, 3U);
  EXPECT_EQ(window.last_step, 4U) << "the spans of step 5 were not written";
  EXPECT_EQ(window.begin_ns, 300'000U);
  EXPECT_EQ(window.end_ns, 500'000U);
  EXPECT_EQ(window.complete, 1U);
  EXPECT_EQ(window.cut, 1U);
}

TEST(SessionFile, HasEachWindowThatWasClosedOnce) {
  const Session read = parse_session(cut_in_a_window(1, true), "test");
  ASSERT_EQ(read.windows.size(), 1U);
  EXPECT_EQ(read.windows[0].last_step, 5U);
  EXPECT_EQ(read.windows[0].cut, 0U);
}

TEST(SessionFile, HasNoWindowWithoutAWholeStep) {
  for (const bool is_second : {false, true}) {
    const std::string whole = cut_in_a_window(0, false, is_second);
    std::vector<std::size_t> last_steps;  // by the number of chunks after the one that opens it
    std::string file;
    for (const auto& [type, bytes] : chunks_of(whole)) {
      file += bytes;
      if (type != Chunk::opened && last_steps.empty()) continue;
      const Session read = parse_session(file, "test");
      ASSERT_LE(read.windows.size(), is_second ? 2U : 1U);
      const bool is_there = !read.windows.empty() && read.windows.back().cut != 0;
      last_steps.push_back(is_there ? read.windows.back().last_step : 0);
    }
    EXPECT_THAT(last_steps, ::testing::ElementsAre(0, 3, 3, 4, 4)) << is_second;
  }
}

// Activities are written when a window closes.
TEST(SessionFile, ADeepWindowThatWasOpenIsNotBesideOnesWithActivities) {
  Session read = parse_session(cut_in_a_window(1), "test");
  ASSERT_EQ(read.windows.size(), 1U);
  EXPECT_EQ(read.windows[0].complete, 1U);
  read = parse_session(cut_in_a_window(1, false, true), "test");
  ASSERT_EQ(read.windows.size(), 2U);
  EXPECT_EQ(read.windows[0].cut, 0U);
  EXPECT_EQ(read.windows[1].cut, 1U);
  EXPECT_EQ(read.windows[1].complete, 0U);
  read = parse_session(cut_in_a_window(0, false, true), "test");
  EXPECT_EQ(read.windows.at(1).complete, 1U) << "that one was to have spans alone";
}

// Else it would end with a later step, of which nothing was recorded.
TEST(SessionFile, AWindowWhoseEndIsDamagedIsNotCut) {
  std::string file;
  for (auto [type, bytes] : chunks_of(cut_in_a_window(0, true))) {
    if (type == Chunk::windows) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    file += bytes;
  }
  EXPECT_TRUE(parse_session(file, "test").windows.empty());
}

std::size_t records_of(const Session& session) {
  return session.devices.size() + session.steps.size() + session.windows.size() +
         session.spans.size() + session.activities.size() + session.samples.size() +
         session.clocks.size();
}

TEST(SessionFile, AFlippedByteCostsItsChunkAndIsReported) {
  const Session session = sample_session();
  const std::string whole = file_of(session);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const Session read = parse_session(damaged, "test.prof");
    EXPECT_GE(read.losses.damaged_chunks, 1U) << at;
    EXPECT_GT(read.losses.damaged_bytes, sizeof(ChunkHeader)) << at;
    EXPECT_EQ(read.losses.cut_bytes, 0U) << at;
    EXPECT_LE(records_of(read), records_of(session)) << at;
  }
}

TEST(SessionFile, ReadsChunksAfterADamagedOne) {
  for (const bool is_header : {false, true}) {
    std::string file;
    for (auto [type, bytes] : chunks_of(file_of(sample_session()))) {
      if (type == Chunk::windows) bytes[is_header ? 0 : bytes.size() - 1] ^= 1;
      file += bytes;
    }
    const Session read = parse_session(file, "test");
    EXPECT_TRUE(read.windows.empty());
    EXPECT_EQ(read.losses.damaged_chunks, 1U);
    EXPECT_EQ(read.losses.damaged_bytes, sizeof(ChunkHeader) + sizeof(Window));
    EXPECT_EQ(read.losses.damaged_records, 0U);
    EXPECT_EQ(read.steps.size(), 2U);
    EXPECT_EQ(read.spans.size(), 2U);
    EXPECT_EQ(read.samples.size(), 1U);
    EXPECT_EQ(read.clocks.size(), 1U);
  }
}

// 200 bytes of anything, as a bad sector leaves them: what the chunks there held is lost, no more.
TEST(SessionFile, IsReadWhereverItIsDamaged) {
  Session session = sample_session();
  session.phases = {{1'000, 2'000, 1'000, 0, 0, 0}};
  for (int i = 0; i < 40; ++i) session.notes.push_back("note " + std::to_string(i));
  const std::string whole = file_of(session);
  for (std::size_t at = 0; at + 200 <= whole.size(); at += 37) {
    std::string damaged = whole;
    for (std::size_t i = 0; i < 200; ++i)
      damaged[at + i] = static_cast<char>(damaged[at + i] ^ static_cast<char>(1 + i % 255));
    Session read;
    ASSERT_NO_THROW(read = parse_session(damaged, "test")) << "damaged at " << at;
    EXPECT_GE(read.losses.damaged_chunks, 1U);
    EXPECT_GE(read.notes.size() + read.steps.size(), 30U);
  }
}

// The numbers of names in later chunks are unknown: records that use them are dropped, others stay.
TEST(SessionFile, NamesAfterLostOnesAreNotUsed) {
  const std::filesystem::path path = temporary("names.prof");
  {
    SessionWriter writer(path);
    for (const char* name : {"first", "lost", "later"})
      writer.write(Chunk::names, Json::array({Json::array({name, 0})}));
    writer.write(Chunk::threads, Json::array({Json::array({1, "main"})}));
    std::vector<Span> spans(3);
    for (std::uint32_t i = 0; i < 3; ++i) spans[i].name = i;
    writer.write(Chunk::spans, spans);
  }
  std::string file;
  for (auto [type, bytes] : chunks_of(read_file(path)))
    file += bytes.find("lost") == bytes.npos ? bytes : bytes.replace(bytes.find("lost"), 1, "x");
  const Session read = parse_session(file, "test");
  ASSERT_EQ(read.spans.size(), 1U);
  EXPECT_EQ(read.name(read.spans[0].name), "first");
  EXPECT_EQ(read.losses.damaged_chunks, 2U);
  EXPECT_EQ(read.losses.damaged_records, 2U);
}

// A chunk of names says which number its first one has, so that only its own are lost.
TEST(SessionFile, NamesAfterLostOnesKeepTheirNumbers) {
  const std::filesystem::path path = temporary("numbered.prof");
  {
    SessionWriter writer(path);
    std::size_t first = 0;
    for (const char* name : {"first", "lost", "later"})
      writer.write_list(Chunk::names, first++, Json::array({Json::array({name, 0})}));
    writer.write_list(Chunk::threads, 0, Json::array({Json::array({1, "main"})}));
    std::vector<Span> spans(3);
    for (std::uint32_t i = 0; i < 3; ++i) spans[i].name = i;
    writer.write(Chunk::spans, spans);
  }
  std::string file;
  for (auto [type, bytes] : chunks_of(read_file(path)))
    file += bytes.find("lost") == bytes.npos ? bytes : bytes.replace(bytes.find("lost"), 1, "x");
  const Session read = parse_session(file, "test");
  ASSERT_EQ(read.spans.size(), 2U);
  EXPECT_EQ(read.name(read.spans[0].name), "first");
  EXPECT_EQ(read.name(read.spans[1].name), "later");
  EXPECT_EQ(read.losses.damaged_chunks, 1U);
  EXPECT_EQ(read.losses.damaged_records, 1U);
}

TEST(SessionFile, ReplacesALinkAndLeavesItsTarget) {
  const std::filesystem::path path = temporary("link.prof"), victim = temporary("victim");
  std::filesystem::remove(path);
  std::ofstream(victim) << "mine";
  std::filesystem::create_symlink(victim, path);
  SessionWriter(path).write(sample_session());
  EXPECT_EQ(read_file(victim), "mine");
  EXPECT_EQ(read_session(path).steps.size(), 2U);
}

TEST(SessionFile, RefusesOtherFiles) {
  EXPECT_THROW(parse_session("", "empty"), DataError);
  EXPECT_THROW(parse_session("hello", "text"), DataError);
  EXPECT_THROW(read_session("/nonexistent/session.prof"), DataError);
}

TEST(SessionFile, SkipsChunksOfOtherVersions) {
  const std::filesystem::path path = temporary("later.prof");
  {
    SessionWriter writer(path);
    writer.write(static_cast<Chunk>(999), Json{{"new", true}});
    writer.write(static_cast<Chunk>(16), std::vector<std::array<std::uint64_t, 2>>{{7, 1}});
    writer.write(Chunk::note, std::string_view("after"));
  }
  EXPECT_EQ(read_session(path).notes, std::vector<std::string>{"after"});
}

TEST(SessionFile, RefusesALaterSchema) {
  const std::filesystem::path path = temporary("schema.prof");
  {
    SessionWriter writer(path);
    writer.write(Chunk::header, Json{{"schema", 99}});
  }
  EXPECT_THROW(read_session(path), DataError);
}

TEST(SessionFile, RefusesImpossibleContent) {
  Session session = sample_session();
  session.spans[0].name = 99;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.spans[0].thread = 99;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.activities[0].end_ns = 1;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.steps[0].other_ns += 1;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.steps[1].step = session.steps[0].step;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.steps[1].begin_ns -= 200'000;  // before the first one ends
  session.steps[1].other_ns += 200'000;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.activities[1].device = 5;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.samples[0].at_ns = std::uint64_t{1} << 63;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.samples[0].value = std::numeric_limits<double>::infinity();
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
  session = sample_session();
  session.phases = {{1'000, 2'000, 1'001, 0, 0, 1}};
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
}

TEST(SessionFile, RefusesPartsThatAddUpOnlyByWrappingAround) {
  Session session = sample_session();
  session.steps[0].data_ns = std::uint64_t{1} << 63;
  session.steps[0].copies_ns += std::uint64_t{1} << 63;
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
}

// A byte each would take 104 times as much memory as the file.
TEST(SessionFile, RefusesRecordsThatAreFarTooSmall) {
  const std::filesystem::path path = temporary("small.prof");
  const auto refusal = [&](Chunk type, const auto& records) -> std::string {
    SessionWriter(path).write(type, records);
    try {
      read_session(path);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  const auto refused = HasSubstr("has records that are too small");
  EXPECT_THAT(refusal(Chunk::activities, std::vector<std::uint8_t>(1000)), refused);
  EXPECT_THAT(refusal(Chunk::losses, std::vector<std::uint64_t>(3)), refused);
  EXPECT_EQ(refusal(Chunk::losses, std::vector<std::array<std::uint64_t, 4>>(1)), "")
      << "the first version's";
}

TEST(SessionFile, RefusesJsonThatIsNestedTooDeeply) {
  const std::filesystem::path path = temporary("deep.prof");
  const auto write = [&](const std::string& text) {
    SessionWriter(path).write(Chunk::program, std::string_view(text));
  };
  const auto refused =
      ::testing::ThrowsMessage<DataError>(::testing::HasSubstr("nested too deeply"));
  write(std::string(64, '[') + std::string(64, ']'));
  EXPECT_EQ(read_session(path).program.size(), 1U);
  write(std::string(65, '[') + std::string(65, ']'));
  EXPECT_THAT([&] { read_session(path); }, refused);
  write(std::string(300'000, '['));
  EXPECT_THAT([&] { read_session(path); }, refused);
}

TEST(SessionFile, RefusesJsonThatWouldTakeMinutes) {
  const std::filesystem::path path = temporary("keys.prof");
  const auto object = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
    return text + "}";
  };
  const auto write = [&](std::string_view text) { SessionWriter(path).write(Chunk::stamp, text); };
  write("{\"a\":" + object(4000) + ",\"b\":[" + object(4000) + "]}");
  EXPECT_EQ(read_session(path).stamp.at("b").at(0).size(), 4000U);
  std::string list = "{}";  // as the calls of a program with thousands of layers
  for (int i = 1; i < 300'000; ++i) list += ",{}";
  write("{\"calls\":[" + list + "]}");
  EXPECT_EQ(read_session(path).stamp.at("calls").size(), 300'000U);
  const auto refused = ::testing::ThrowsMessage<DataError>(::testing::HasSubstr("too many keys"));
  write("[{\"a\":" + object(4097) + "}]");
  EXPECT_THAT([&] { read_session(path); }, refused);
  list = object(4000);  // each of them is small enough
  for (int i = 1; i < 34; ++i) list += "," + object(4000);
  write("[" + list + "]");
  EXPECT_THAT([&] { read_session(path); }, refused);
  write(std::string((std::size_t{64} << 20) + 1, ' '));
  EXPECT_THROW(read_session(path), DataError);
}

TEST(SessionFile, RefusesWhatFollowsAZeroByteInJson) {
  const std::filesystem::path path = temporary("zero.prof");
  const auto write = [&](std::string_view text) { SessionWriter(path).write(Chunk::stamp, text); };
  write("{}");
  EXPECT_TRUE(read_session(path).stamp.empty());
  write({"{}\0x", 4});
  EXPECT_THROW(read_session(path), DataError);
}

TEST(SessionFile, RefusesMoreDevicesThanAMachineHas) {
  Session session = sample_session();
  session.devices.resize(64, session.devices[0]);
  EXPECT_EQ(parse_session(file_of(session), "test").devices.size(), 64U);
  session.devices.push_back(session.devices[0]);
  EXPECT_THROW(parse_session(file_of(session), "test"), DataError);
}

TEST(SessionFile, GivesNotesThatJsonCanHold) {
  const std::filesystem::path path = temporary("note.prof");
  {
    SessionWriter writer(path);
    writer.write(Chunk::note, std::string_view("a\xff"));
  }
  EXPECT_NO_THROW(Json(read_session(path).notes).dump());
}

TEST(SessionWriter, SaysThatBytesWereLostAtTheEnd) {
  const std::filesystem::path path = temporary("close.prof");
  SessionWriter interrupted(path);
  close_error = EINTR;
  EXPECT_NO_THROW(interrupted.close());
  SessionWriter writer(path);
  close_error = EIO;
  EXPECT_THAT([&] { writer.close(); },
              ::testing::ThrowsMessage<DataError>(
                  ::testing::AllOf(HasSubstr(path.string()), HasSubstr("Input/output error"))));
  EXPECT_NO_THROW(writer.close()) << "once";
}

TEST(SessionWriter, SaysWhenTheDiskIsFull) {
  EXPECT_THROW(SessionWriter("/dev/full"), DataError);
  EXPECT_THROW(SessionWriter("/nonexistent/a.prof"), DataError);
}

}  // namespace
}  // namespace warpstep::profiler
