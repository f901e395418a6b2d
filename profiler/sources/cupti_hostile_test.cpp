// Buffers that are cut off, have unknown kinds, or contain noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler {
namespace {

using namespace testing;

TEST(CuptiHostile, CountsRecordsWithoutTimes) {
  Bytes buffer;
  put(buffer, kernel(0, 0, 1));
  put(buffer, kernel(100, 0, 2));
  put(buffer, kernel(0, 100, 3));
  put(buffer, kernel(100, 101, 4));
  const Parsed parsed = parse(buffer);
  EXPECT_EQ(parsed.without_times, 3U);
  EXPECT_EQ(parsed.activities.size(), 1U);
}

TEST(CuptiHostile, SkipsKindsThatAreNotEnabled) {
  Bytes buffer;
  for (std::uint32_t kind = 1; kind < 56; ++kind) {
    if (oldest_record_bytes()[kind] == 0) continue;
    Bytes one(oldest_record_bytes()[kind]);
    std::memcpy(one.data(), &kind, sizeof kind);
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER) continue;
    buffer.insert(buffer.end(), one.begin(), one.end());
  }
  put(buffer, kernel(100, 200, 1));
  const Parsed parsed = parse(buffer);
  EXPECT_EQ(parsed.unread_parts, 0U);
  ASSERT_EQ(parsed.activities.size(), 1U);
  EXPECT_EQ(parsed.activities[0].correlation, 1U);
}

TEST(CuptiHostile, AnUnknownKindEndsItsBufferOnly) {
  Bytes buffer;
  put(buffer, kernel(100, 200, 1));
  const std::uint32_t unknown = 4711;
  put(buffer, unknown);
  put(buffer, kernel(300, 400, 2));
  Parser parser(text_of, false);
  parser.take(buffer);
  Bytes next;
  put(next, kernel(500, 600, 3));
  parser.take(next);
  const Parsed parsed = parser.finish({});
  ASSERT_EQ(parsed.activities.size(), 2U);
  EXPECT_EQ(parsed.activities[1].correlation, 3U);
  EXPECT_EQ(parsed.unread_parts, 1U);
  EXPECT_EQ(parsed.unread_bytes, 4 + sizeof(CUpti_ActivityKernel10));
}

TEST(CuptiHostile, ABufferMayEndAnywhere) {
  Bytes buffer;
  put(buffer, external(4, 1));
  put(buffer, call(runtime, launch_call, 50, 1));
  put(buffer, kernel(100, 200, 1));
  for (std::size_t bytes = 0; bytes <= buffer.size(); ++bytes) {
    const Bytes part(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
    const Parsed parsed = parse(part);
    const std::size_t whole = bytes < 64 ? 0 : bytes < buffer.size() ? 1 : 2;
    EXPECT_EQ(parsed.activities.size(), whole) << bytes;
    const bool at_a_seam = bytes == 0 || bytes == 24 || bytes == 64 || bytes == buffer.size();
    EXPECT_EQ(parsed.unread_parts, at_a_seam ? 0U : 1U) << bytes;
  }
}

TEST(CuptiHostile, NoiseIsHarmless) {
  std::mt19937 random(7);
  const auto text = [](TextOf, std::uint64_t) { return std::string("x"); };
  for (int round = 0; round < 2000; ++round) {
    Bytes buffer(std::uniform_int_distribution<std::size_t>(0, 2000)(random));
    for (std::byte& byte : buffer) byte = static_cast<std::byte>(random());
    for (std::size_t at = 0; at + 4 <= buffer.size(); at += 8)
      if (random() % 4 == 0) {
        const std::uint32_t kind = static_cast<std::uint32_t>(random() % 56);
        std::memcpy(buffer.data() + at, &kind, sizeof kind);
      }
    const std::uint32_t kind = static_cast<std::uint32_t>(random() % 56);
    if (buffer.size() >= 4) std::memcpy(buffer.data(), &kind, sizeof kind);
    Parser parser(text, false);
    parser.take(buffer);
    const Parsed parsed = parser.finish({});
    EXPECT_TRUE(std::ranges::is_sorted(parsed.activities, {}, &Activity::start_ns));
    for (const Activity& a : parsed.activities) EXPECT_LE(a.start_ns, a.end_ns);
  }
}

// Up to 13.1 the library steps through a buffer even without a driver.
TEST(CuptiHostile, StepsAsTheLibraryDoes) {
  const CuptiApi api = load_cupti_api();
  if (const std::string why = why_cupti_cannot_be_asked(api); !why.empty()) GTEST_SKIP() << why;
  std::uint32_t version = 0;
  ASSERT_EQ(api.get_version(&version), CUPTI_SUCCESS);
  if (!knows_cupti_version(version)) GTEST_SKIP() << "libcupti.so.13 is " << version;
  const RecordBytes bytes = measure_record_bytes(api);
  EXPECT_EQ(too_short_record(bytes), "");
  if (version / 100 == oldest_cupti / 100) {
    EXPECT_EQ(bytes, oldest_record_bytes());
  }
}

}  // namespace
}  // namespace warpstep::profiler
