// Replaying a dump gives the window's records; a damaged dump is reported with the byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <tuple>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/record.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/cupti_dump.h"
#include "profiler/sources/cupti_testing.h"
#include "profiler/sources/cupti_trace.h"

namespace warpstep::profiler {
namespace {

using testing::FakeCupti;
using testing::FakeGraph;
using testing::Faults;
using ::testing::HasSubstr;

const record::Name replay_conv("conv1", Kind::call);

constexpr TraceSettings settings{.buffers = {.bytes = 2048, .count = 100},
                                 .between_readings = std::chrono::hours(1)};

template <class Record>
std::string bytes_of(const std::vector<Record>& records) {
  return {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record)};
}

void expect_equal(const Traced& a, const Traced& b) {
  EXPECT_EQ(bytes_of(a.activities), bytes_of(b.activities));
  EXPECT_EQ(bytes_of(a.clocks), bytes_of(b.clocks));
  EXPECT_EQ(bytes_of(std::vector{a.losses}), bytes_of(std::vector{b.losses}));
  EXPECT_EQ(a.notes, b.notes);
}

class CuptiReplay : public ::testing::Test {
 protected:
  CuptiReplay()
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("cupti-" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
               std::to_string(::getpid()))) {}
  ~CuptiReplay() override { std::filesystem::remove(path_); }

  // Windows with records of all kinds, the last one with losses.
  std::vector<Traced> record(int windows, int launches, const Faults& faults = {}) {
    FakeCupti cupti;
    cupti.faults = faults;
    cupti.drift = 13e-6;
    const OpenedTrace opened = open_trace(cupti.api(), {path_}, settings);
    EXPECT_EQ(opened.why, "");
    FakeGraph graph;
    {
      const record::Span span(replay_conv, 6);
      cupti.capture(graph, "_Z4gemmPfi");
    }
    cupti.capture(graph, "_Z5otherv");
    const FakeGraph executable = cupti.instantiate(graph);
    std::vector<Traced> all;
    for (int window = 0; window < windows; ++window) {
      const bool last = window + 1 == windows;
      if (last) cupti.faults.enable[CUPTI_ACTIVITY_KIND_MEMSET] = CUPTI_ERROR_UNKNOWN;
      opened.trace->begin();
      for (int i = 0; i < launches; ++i) {
        const record::Span span(replay_conv, static_cast<std::uint64_t>(i));
        cupti.launch(FakeCupti::Launch{.by_driver = true});
        cupti.launch({.kernel = "_Z4biasPf", .by_runtime = false, .by_driver = true});
      }
      cupti.launch(executable);
      cupti.copy(1, 2, 3, 1000);
      cupti.synchronize_stream();
      cupti.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL);
      cupti.pass(1'000'000'000);
      if (last) {
        cupti.faults.dropped = 3;
        cupti.faults.no_times = true;
        cupti.launch("_Z4gemmPfi");
        cupti.put_raw(std::uint64_t{4711});
      }
      all.push_back(opened.trace->end());
    }
    return all;
  }

  std::string error_of(const std::string& bytes) const {
    try {
      parse_dump(bytes, "a.dump");
    } catch (const DataError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("a.dump: ")) << error.what();
      return error.what();
    }
    return {};
  }

  std::filesystem::path path_;
};

TEST_F(CuptiReplay, GivesTheRecordsOfTheWindow) {
  const std::vector<Traced> windows = record(1, 200);
  EXPECT_GT(windows[0].activities.size(), 800U);
  EXPECT_EQ(windows[0].losses.activities, 4U);
  EXPECT_EQ(windows[0].losses.without_times, 1U);
  EXPECT_EQ(windows[0].notes.size(), 4U);
  expect_equal(replay_device_trace(path_), windows[0]);
}

// Those of 13.5: what is appended changes nothing.
TEST_F(CuptiReplay, ReadsLongerRecords) {
  const auto summary = [](const Traced& window) {
    std::vector<std::tuple<What, std::uint64_t, std::uint64_t, std::uint32_t>> all;
    for (const Activity& a : window.activities)
      all.emplace_back(a.what, a.end_ns - a.start_ns, a.bytes, a.external);
    return all;
  };
  const std::vector<Traced> first = record(1, 20);
  const std::vector<Traced> longer = record(1, 20,
                                            {.version = 130500,
                                             .longer = {{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 32},
                                                        {CUPTI_ACTIVITY_KIND_MEMCPY, 16},
                                                        {CUPTI_ACTIVITY_KIND_MEMSET, 16}}});
  EXPECT_EQ(summary(longer[0]), summary(first[0]));
  EXPECT_EQ(longer[0].losses.activities, first[0].losses.activities);
  expect_equal(replay_device_trace(path_), longer[0]);
}

TEST_F(CuptiReplay, GivesTheDevices) {
  record(2, 1);
  const std::vector<Device> devices = replay_device_trace(path_).devices;
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(record::names()[devices[0].name].text, "NVIDIA H200");
  EXPECT_EQ(devices[0].total_memory, 150'754'820'096U);
}

TEST_F(CuptiReplay, SeveralWindows) {
  const std::vector<Traced> windows = record(3, 20);
  const std::vector<Traced> replayed = replay_windows(path_);
  ASSERT_EQ(replayed.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) expect_equal(replayed[i], windows[i]);
  const Traced all = replay_device_trace(path_);
  EXPECT_EQ(all.activities.size(), windows[0].activities.size() + windows[1].activities.size() +
                                       windows[2].activities.size());
  EXPECT_EQ(all.clocks.size(), 6U);
  EXPECT_EQ(all.losses.activities, 4U);
}

TEST_F(CuptiReplay, EveryCutIsNamed) {
  record(1, 2);
  const std::string bytes = read_file(path_);
  ASSERT_EQ(error_of(bytes), "");
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_NE(error_of(bytes.substr(0, length)), "") << length;
  EXPECT_THAT(error_of(bytes.substr(0, 500)), HasSubstr("is cut at byte 500"));
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of(bytes.substr(0, 80)), HasSubstr("ends at byte 80, inside a window"));
}

TEST_F(CuptiReplay, EveryFlippedBitIsNoticed) {
  record(1, 2);
  std::string bytes = read_file(path_);
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const int mask : {1, 16, 128, 255}) {
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      ASSERT_THAT(error_of(bytes), HasSubstr(" byte ")) << at;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
    }
}

// An invalid dump whose checksums are right.
class Forged {
 public:
  template <class Record>
  Forged& add(DumpChunk type, const Record& record) {
    return add(type, std::string(reinterpret_cast<const char*>(&record), sizeof record));
  }
  Forged& add(DumpChunk type, const std::string& payload) {
    ChunkHeader header;
    header.magic = dump_magic;
    header.type = static_cast<std::uint32_t>(type);
    header.id = id_++;
    header.count = header.bytes = payload.size();
    header.payload_crc = checksum(std::as_bytes(std::span(payload)));
    header.header_crc = header_checksum(header);
    bytes += std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
    return *this;
  }
  std::string bytes;

 private:
  std::uint32_t id_ = 0;
};

TEST_F(CuptiReplay, ReportsImpossibleContent) {
  for (const std::uint32_t bytes : {0U, 208U, 217U, 4'000'000'000U}) {
    DumpLayout other;
    other.kernel_bytes = bytes;
    EXPECT_THAT(error_of(Forged().add(DumpChunk::layout, other).bytes),
                HasSubstr("have another layout"));
  }
  EXPECT_THAT(error_of(Forged().add(DumpChunk::layout, DumpLayout(newest_cupti + 1)).bytes),
              HasSubstr("was dumped with CUPTI 130600"));
  const auto sound = [] { return Forged().add(DumpChunk::layout, DumpLayout{}); };
  EXPECT_THAT(error_of(Forged().add(DumpChunk::end, DumpEnd{}).bytes),
              HasSubstr("at byte 0: a dump must begin with the layout"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::layout, DumpLayout{}).bytes),
              HasSubstr("at byte 80: a dump must begin"));
  EXPECT_THAT(error_of(sound().add(static_cast<DumpChunk>(99), DumpEnd{}).bytes),
              HasSubstr("unknown type 99"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::end, std::string("12345")).bytes),
              HasSubstr("has 5 bytes, not a multiple of 8"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::end, std::string(16, '\0')).bytes),
              HasSubstr("has 16 bytes, expected 8"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::texts, DumpText{1, 0, 7}).bytes),
              HasSubstr("ends within a text"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::clocks, std::string(32, '\xff')).bytes),
              HasSubstr("impossible clock readings"));
  EXPECT_THAT(error_of(sound().add(DumpChunk::devices, DumpDevice{.name_bytes = 7}).bytes),
              HasSubstr("ends within a device"));
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.name = reinterpret_cast<const char*>(0x1234);
  EXPECT_THAT(error_of(sound().add(DumpChunk::buffer, kernel).bytes),
              HasSubstr("the buffer at byte 80 refers to the missing name 0x1234"));
  EXPECT_EQ(error_of(sound().add(DumpChunk::end, DumpEnd{}).bytes), "");
}

TEST_F(CuptiReplay, NoFile) {
  EXPECT_THROW(replay_device_trace("/nowhere/there.dump"), DataError);
}

}  // namespace
}  // namespace warpstep::profiler
