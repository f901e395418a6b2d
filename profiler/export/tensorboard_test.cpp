#include <gmock/gmock.h>

#include <map>

#include "profiler/export/event_file.h"
#include "profiler/export/export.h"
#include "profiler/export/protobuf.h"
#include "profiler/export/testing_proto.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The records of a file; a checksum that is wrong fails the test.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> all;
  while (!file.empty()) {
    const std::string_view length = file.substr(0, 8);
    EXPECT_EQ(little_endian(file.substr(8, 4)), masked_crc32c(length));
    const std::size_t bytes = little_endian(length);
    all.emplace_back(file.substr(12, bytes));
    EXPECT_EQ(little_endian(file.substr(12 + bytes, 4)), masked_crc32c(all.back()));
    file.remove_prefix(16 + bytes);
  }
  return all;
}

// TensorFlow's mask, applied to the check values of CRC32C: 0 for no bytes, 0xE3069283 for these.
TEST(MaskedCrc32c, RotatesAndShiftsTheChecksum) {
  EXPECT_EQ(masked_crc32c(""), 0xA282EAD8U);
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5U);
}

TEST(TensorBoard, BeginsWithTheVersion) {
  const auto all = records(tensorboard_events(Session{}));
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(ProtoView(all[0]).text(3), "brain.Event:2");
}

TEST(TensorBoard, HasAllScalarsOfAStep) {
  const Session session = device_session(3).build();
  const auto all = records(tensorboard_events(session));
  ASSERT_THAT(all, SizeIs(4));
  const ProtoView event(all[2]);
  EXPECT_EQ(event.number(2), 2U);
  EXPECT_DOUBLE_EQ(event.real(1), 1'700'000'000.003);  // the second step ends 3 ms after the start
  std::map<std::string, float> scalars;
  for (const ProtoView& value : event.message(5).messages(1)) {
    EXPECT_THAT(value.fields(), SizeIs(2));
    scalars[value.text(1)] = value.real32(2);
  }
  EXPECT_EQ(scalars, (std::map<std::string, float>{{"train/loss", 2.3F},
                                                   {"train/accuracy", 13.0F / 128},
                                                   {"train/learning_rate", 0.001F},
                                                   {"step/time_ms", 1.0F},
                                                   {"step/data_ms", 0.2F},
                                                   {"step/kernels_ms", 0.4F},
                                                   {"step/copies_ms", 0.04F},
                                                   {"step/cpu_ms", 0.3F},
                                                   {"step/other_ms", 0.06F}}));
}

TEST(TensorBoard, AStepWithoutSamplesHasNoAccuracy) {
  SessionBuilder builder = host_session(1);
  builder.raw().steps[0].samples = 0;
  EXPECT_EQ(tensorboard_events(builder.build()).find("train/accuracy"), std::string::npos);
}

TEST(TensorBoard, NamesItsFileByTimeAndHost) {
  EXPECT_EQ(tensorboard_name(device_session().build()), "events.out.tfevents.1700000000.train-1");
  EXPECT_EQ(tensorboard_name(host_session().build()), "events.out.tfevents.1700000000.host");
  Session session = device_session().build();
  session.stamp["host"] = {{"name", "../a b"}};
  EXPECT_EQ(tensorboard_name(session), "events.out.tfevents.1700000000..._a_b");
}

TEST(TensorBoard, TheSameSessionGivesTheSameBytes) {
  const Session session = device_session().build();
  EXPECT_EQ(tensorboard_events(session), tensorboard_events(session));
}

}  // namespace
}  // namespace warpstep::profiler
