#include "profiler/export/protobuf.h"

#include <gmock/gmock.h>

#include <limits>

#include "profiler/export/testing_proto.h"

namespace warpstep::profiler {
namespace {

using testing::ProtoView;

std::string bytes(std::initializer_list<int> values) {
  std::string all;
  for (const int value : values) all.push_back(static_cast<char>(value));
  return all;
}

// The examples of the format's own description.
TEST(Protobuf, WritesTheDocumentedExamples) {
  EXPECT_EQ(ProtoMessage().varint(1, 150).bytes(), bytes({0x08, 0x96, 0x01}));
  EXPECT_EQ(ProtoMessage().text(2, "testing").bytes(), bytes({0x12, 0x07}) + "testing");
  EXPECT_EQ(ProtoMessage().message(3, ProtoMessage().varint(1, 150)).bytes(),
            bytes({0x1a, 0x03, 0x08, 0x96, 0x01}));
  EXPECT_EQ(ProtoMessage().varint(1, ~std::uint64_t{1}).bytes(),
            bytes({0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
}

TEST(Protobuf, FixedNumbersAreLittleEndian) {
  EXPECT_EQ(ProtoMessage().fixed64(1, 0x0102030405060708).bytes(),
            bytes({0x09, 8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(ProtoMessage().float64(1, 1.0).bytes(), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}));
  EXPECT_EQ(ProtoMessage().float32(1, 1.0F).bytes(), bytes({0x0d, 0, 0, 0x80, 0x3f}));
}

TEST(Protobuf, EveryLengthOfANumberComesBack) {
  ProtoMessage message;
  std::vector<std::uint64_t> values{0,     127,   128,
                                    16383, 16384, std::numeric_limits<std::uint64_t>::max()};
  for (unsigned bit = 0; bit < 64; ++bit) values.push_back(std::uint64_t{1} << bit);
  for (const std::uint64_t value : values) message.varint(1000, value);
  EXPECT_EQ(ProtoView(message.bytes()).numbers(1000), values);
}

TEST(Protobuf, FieldsOfTwoMessagesAreTheFieldsOfOne) {
  const ProtoMessage first = ProtoMessage().varint(1, 2), second = ProtoMessage().text(3, "x");
  EXPECT_EQ(ProtoMessage(first).fields(second).bytes(), first.bytes() + second.bytes());
  EXPECT_TRUE(ProtoMessage().empty());
}

}  // namespace
}  // namespace warpstep::profiler
