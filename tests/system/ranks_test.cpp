// The profiles of several processes of one job, from their options to one time line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "data/formats/tar.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A port of this machine that is free now.
std::string free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  ::close(socket);
  return std::to_string(ntohs(address.sin_port));
}

class Ranks : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  std::vector<std::string> start(int rank, const std::string& at) const {
    return with(short_run(data_, run_of(rank)), "--profile-rank", std::to_string(rank) + '@' + at);
  }
  std::string run_of(int rank) const { return folder_ / ("rank" + std::to_string(rank)); }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
};

TEST_F(Ranks, AreLaidOverEachOther) {
  const std::string at = "127.0.0.1:" + free_port();
  Program zero(start(0, at));
  const Ended one = run(start(1, at)), first = zero.wait();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const std::string archive = folder_ / "job.tar";
  // The order of the arguments does not matter.
  const Ended ranks = run({"ranks", run_of(1), run_of(0), "--json", "--perfetto", archive});
  ASSERT_EQ(ranks.exit_code, 0) << ranks.err;
  const Json merged = Json::parse(ranks.out);
  ASSERT_EQ(merged["ranks"].size(), 2U);
  EXPECT_EQ(merged["ranks"][1]["rank"], 1);
  EXPECT_EQ(merged["ranks"][1]["clock"], "the same machine's clock");
  EXPECT_EQ(merged["stragglers"].size(), 11U);

  data::TarReader members(archive);
  std::vector<std::string> names;
  for (data::TarMember member; members.next(member);) names.push_back(member.name);
  EXPECT_THAT(names,
              testing::ElementsAre("perfetto_manifest.json", "rank-0.pftrace", "rank-1.pftrace"));
  const Ended printed = run({"ranks", run_of(0), run_of(1)});
  EXPECT_THAT(printed.out, AllOf(HasSubstr("the others waiting"), HasSubstr("rank 0's own")));
}

TEST_F(Ranks, TrainWithoutRankZeroAndSaySo) {
  const Ended alone = run(start(1, "127.0.0.1:" + free_port()));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("rank 0's clock was never read"));
}

TEST_F(Ranks, SayForWhomTheyWait) {
  const std::string port = free_port();
  const std::map<std::string, std::string> place{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"WARPSTEP_PORT", port}};
  for (const auto& [name, value] : place) ::setenv(name.c_str(), value.c_str(), 1);
  Program alone(short_run(data_, run_of(0)));
  for (const auto& [name, value] : place) ::unsetenv(name.c_str());
  EXPECT_TRUE(alone.wait_for_err("rank 0 waits for the others of 2, which meet at localhost port " +
                                 port + "; --dist none trains alone"));
  alone.signal(SIGKILL);
  alone.wait();
}

TEST_F(Ranks, AreRefusedWhereTheyCannotBeMeant) {
  const Ended unreadable = run(start(1, "nowhere"));
  EXPECT_EQ(unreadable.exit_code, 2);
  EXPECT_THAT(unreadable.err, HasSubstr("1@node0:29555"));
  const Ended off = run(with(start(1, "node0:29555"), "--profile", "off"));
  EXPECT_EQ(off.exit_code, 2);
  EXPECT_THAT(off.err, HasSubstr("--profile off"));
  EXPECT_FALSE(fs::exists(run_of(1)));
  ASSERT_EQ(run(short_run(data_, run_of(0))).exit_code, 0);
  const Ended single = run({"ranks", run_of(0)});
  EXPECT_EQ(single.exit_code, 1);
  EXPECT_THAT(single.err, HasSubstr("at least two"));
}

}  // namespace
}  // namespace warpstep::system_test
