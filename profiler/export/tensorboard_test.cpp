#include <gmock/gmock.h>

#include <map>

#include "profiler/export/event_file.h"
#include "profiler/export/export.h"
#include "profiler/export/protobuf.h"
#include "profiler/export/testing_proto.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

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

std::map<std::string, float> scalars_in(const ProtoView& event) {
  std::map<std::string, float> scalars;
  for (const ProtoView& value : event.message(5).messages(1)) {
    EXPECT_THAT(value.fields(), SizeIs(2));
    scalars[value.text(1)] = value.real32(2);
  }
  return scalars;
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
  EXPECT_EQ(scalars_in(event), (std::map<std::string, float>{{"train/epoch", 1},
                                                             {"train/loss", 2.3F},
                                                             {"train/accuracy", 13.0F / 128},
                                                             {"train/samples_per_second", 128e3F},
                                                             {"train/learning_rate", 0.001F},
                                                             {"train/ms", 1.0F},
                                                             {"train/data_ms", 0.2F},
                                                             {"train/kernels_ms", 0.4F},
                                                             {"train/copies_ms", 0.04F},
                                                             {"train/cpu_ms", 0.3F},
                                                             {"train/other_ms", 0.06F}}));
}

TEST(TensorBoard, AddsWhatTheRunRecorded) {
  const std::vector<Json> recorded{
      {{"kind", "evaluation"}, {"step", 0}, {"loss", 2.5}, {"time", 1.6e9}},
      {{"kind", "step"}, {"step", 2}, {"loss", 9}, {"gradient_norm", 3}, {"images_per_second", 1}},
      {{"kind", "evaluation"}, {"step", 3}, {"accuracy", 0.5}, {"loss", nullptr}},
      {{"kind", "evaluation"}, {"step", 4}, {"accuracy", 1}},  // of a later session
      {1, 2}};
  const auto all = records(tensorboard_events(device_session(3).build(), recorded));
  ASSERT_THAT(all, SizeIs(7));
  EXPECT_EQ(scalars_in(ProtoView(all[1])),
            (std::map<std::string, float>{{"validation/loss", 2.5F}}));
  EXPECT_DOUBLE_EQ(ProtoView(all[1]).real(1), 1.6e9);
  EXPECT_EQ(scalars_in(ProtoView(all[3]))["train/images_per_second"], 128e3F);
  EXPECT_EQ(scalars_in(ProtoView(all[3]))["train/loss"], 2.3F) << "the session's";
  EXPECT_EQ(scalars_in(ProtoView(all[4])),
            (std::map<std::string, float>{{"train/gradient_norm", 3}}));
  EXPECT_EQ(scalars_in(ProtoView(all[6])),
            (std::map<std::string, float>{{"validation/accuracy", 0.5F}}));
}

TEST(TensorBoard, HasTheMeanOfTheMachinesSamplesInEachSecond) {
  SessionBuilder builder = host_session(1);
  builder.sample("cpu %", 1e5, 10).sample("cpu %", 6e5, 20).sample("cpu 0 %", 6e5, 99);
  builder.sample("cpu %", 2.2e6, 70).sample("process rss bytes", 2.2e6, 3e6);
  const auto all = records(tensorboard_machine_events(builder.build()));
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(ProtoView(all[2]).number(2), 2U);
  EXPECT_EQ(scalars_in(ProtoView(all[1])),
            (std::map<std::string, float>{{"system/cpu_percent", 15}}));
  EXPECT_EQ(
      scalars_in(ProtoView(all[2])),
      (std::map<std::string, float>{{"system/cpu_percent", 70}, {"system/process_rss_MB", 3}}));
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
