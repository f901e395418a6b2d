#include "profiler/analysis/loader_source.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

// Reads of one reader, one after the other, with 10 % of noise on the time; sizes differ by
// +-`spread`.
std::vector<ReadTime> reads_of(double latency_ns, double ns_per_byte, double bytes, double spread) {
  std::vector<ReadTime> reads;
  std::uint64_t at = 1000;
  for (int i = 0; i < 400; ++i) {
    ReadTime read{.begin_ns = at, .bytes = bytes * (1 + spread * (i % 7 - 3) / 3)};
    read.blocked_ns = (latency_ns + ns_per_byte * read.bytes) * (1 + 0.1 * (i % 3 - 1));
    at += static_cast<std::uint64_t>(read.blocked_ns);
    read.end_ns = at;
    at += 50;
    reads.push_back(read);
  }
  return reads;
}

TEST(LoaderSource, CountsReadersThatOverlap) {
  std::vector<ReadTime> reads{{.begin_ns = 0, .end_ns = 100},
                              {.begin_ns = 50, .end_ns = 100},
                              {.begin_ns = 50, .end_ns = 150},
                              {.begin_ns = 200, .end_ns = 300}};
  count_readers(reads);
  EXPECT_DOUBLE_EQ(reads[0].readers, 2);  // one, then three
  EXPECT_DOUBLE_EQ(reads[1].readers, 3);
  EXPECT_DOUBLE_EQ(reads[2].readers, 2);  // three, then one
  EXPECT_DOUBLE_EQ(reads[3].readers, 1);
}

TEST(LoaderSource, FindsLatency) {
  const SourceFit fit = fit_source(reads_of(150'000, 0, 2000, 0.3));
  EXPECT_TRUE(fit.tells_apart());
  EXPECT_LT(fit.bandwidth_share, 0.1);
  EXPECT_NEAR(fit.latency_ns, 150'000, 15'000);
}

TEST(LoaderSource, FindsABandwidthBySizes) {
  const SourceFit fit = fit_source(reads_of(0, 25, 8000, 0.3));  // 40 MB/s
  EXPECT_TRUE(fit.tells_apart());
  EXPECT_GT(fit.bandwidth_share, 0.9);
  EXPECT_NEAR(fit.bytes_per_s, 40e6, 1e6);
  EXPECT_NEAR(fit.readers, 1, 1e-6);
}

// Each of these readers asks for the next read at once, and waits for the lock that another has for
// 500 us; who is next is random, and may be the one who had it.
std::vector<ReadTime> reads_in_a_lock(std::size_t readers) {
  std::vector<ReadTime> reads;
  std::vector<std::uint64_t> asked(readers, 0);
  std::uint64_t now = 1000, random = 7;
  while (reads.size() < 400) {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < readers; ++i)
      if (asked[i] <= now) waiting.push_back(i);
    random = random * 6364136223846793005 + 1442695040888963407;
    const std::size_t next = waiting[(random >> 33) % waiting.size()];
    now += 500'000 + (random >> 40) % 10'000;
    reads.push_back({.begin_ns = asked[next],
                     .end_ns = now,
                     .blocked_ns = static_cast<double>(now - asked[next]),
                     .bytes = 3000});
    asked[next] = now;
  }
  return reads;
}

TEST(LoaderSource, TellsReadersInALockFromOthers) {
  EXPECT_TRUE(fit_source(reads_in_a_lock(2)).is_serial);
  EXPECT_TRUE(fit_source(reads_in_a_lock(4)).is_saturated());
  EXPECT_FALSE(fit_source(reads_in_a_lock(1)).is_serial);
  // 500 us each, whatever the others do: in step, or at any distance.
  for (const std::uint64_t apart : {130'000, 7'000, 260'000}) {
    std::vector<ReadTime> reads;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const std::uint64_t begin = i / 4 * 520'000 + i % 4 * apart;
      reads.push_back(
          {.begin_ns = begin, .end_ns = begin + 500'000, .blocked_ns = 5e5, .bytes = 3000});
    }
    EXPECT_FALSE(fit_source(reads).is_serial) << apart;
  }
  // On cores: nobody is served.
  std::vector<ReadTime> awake = reads_in_a_lock(4);
  for (ReadTime& read : awake) read.blocked_ns = 0;
  EXPECT_FALSE(fit_source(awake).is_serial);
}

TEST(LoaderSource, FindsABandwidthByReaders) {
  // Equal files: what takes 200 us alone takes 400 us when two read.
  std::vector<ReadTime> reads;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t at = i * 1'000'000;
    reads.push_back({.begin_ns = at, .end_ns = at + 200'000, .blocked_ns = 200e3, .bytes = 8000});
    for (int reader = 0; reader < 2; ++reader)
      reads.push_back(
          {.begin_ns = at + 500'000, .end_ns = at + 900'000, .blocked_ns = 400e3, .bytes = 8000});
  }
  count_readers(reads);
  const SourceFit fit = fit_source(reads);
  EXPECT_TRUE(fit.tells_apart());
  EXPECT_NEAR(fit.ns_per_byte, 25, 0.1);
  EXPECT_GT(fit.bandwidth_share, 0.95);
}

// Reads of 8000 bytes, by one reader or by two, of whose time so much is for want of a core. While
// one reader waits for a core the source serves the other.
std::vector<ReadTime> full_link(double without_core) {
  std::vector<ReadTime> reads;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t alone = i * 1'600'000, both = 200 * 1'600'000 + i * 1'600'000;
    reads.push_back({.begin_ns = alone,
                     .end_ns = alone + 800'000,
                     .blocked_ns = 800e3 * (1 - without_core),
                     .bytes = 8000});
    for (int reader = 0; reader < 2; ++reader)
      reads.push_back({.begin_ns = both,
                       .end_ns = both + 1'600'000,
                       .blocked_ns = 1600e3 * (1 - without_core),
                       .bytes = 8000});
  }
  count_readers(reads);
  return reads;
}

TEST(LoaderSource, IsSaturatedAlsoWhereReadersWaitForCores) {
  for (const double without_core : {0.0, 0.2}) {
    const SourceFit fit = fit_source(full_link(without_core));
    EXPECT_TRUE(fit.is_saturated()) << without_core;
    EXPECT_NEAR(fit.used(), 1, 0.1) << without_core;
  }
  EXPECT_FALSE(fit_source(reads_of(150'000, 0, 2000, 0.3)).is_saturated());  // latency
}

TEST(LoaderSource, IsNotSaturatedByOneReaderThatDoesOtherThings) {
  // 25 of 100 us of each read are the bandwidth's.
  const SourceFit fit = fit_source(reads_of(75'000, 12.5, 2000, 0.3));
  EXPECT_FALSE(fit.is_saturated());
  EXPECT_NEAR(fit.used(), 0.25, 0.1);
}

TEST(LoaderSource, SaysWhenItCannotTell) {
  const SourceFit fit = fit_source(reads_of(100'000, 10, 8000, 0));
  EXPECT_FALSE(fit.tells_apart());
  EXPECT_EQ(fit.least_ns_per_byte, 0);
  EXPECT_NEAR(fit.most_ns_per_byte, 180'000.0 / 8000, 1);
  EXPECT_THAT(fit.ns_per_byte, AllOf(Ge(fit.least_ns_per_byte), Le(fit.most_ns_per_byte)));
}

TEST(LoaderSource, SaysWhatTheLongestReadsHave) {
  std::vector<ReadTime> reads = reads_of(1'000, 0, 8000, 0);
  EXPECT_LT(fit_source(reads).left_out_share, 0.1);
  for (std::size_t i = 49; i < reads.size(); i += 50) reads[i].blocked_ns = 147'000;
  EXPECT_NEAR(fit_source(reads).left_out_share, 0.75, 0.01);
  for (ReadTime& read : reads) read.bytes = 0;  // not known
  EXPECT_NEAR(fit_source(reads).left_out_share, 0.75, 0.01);
}

TEST(LoaderSource, NeedsReadsAndBytes) {
  EXPECT_EQ(fit_source({}).latency_ns, 0);
  const SourceFit unknown = fit_source(reads_of(1000, 0, 0, 0));
  EXPECT_GT(unknown.latency_ns, 0);
  EXPECT_EQ(unknown.most_ns_per_byte, 0);
}

}  // namespace
}  // namespace warpstep::profiler
