#include "profiler/recorder/rank_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t ahead_ns = 7'000'000'000;

std::uint64_t other_clock() {
  return now_ns() + ahead_ns;
}

// Collects the readings of a rank; can be waited for.
class Readings {
 public:
  std::function<void(const PeerClock&)> report() {
    return [this](const PeerClock& reading) {
      const std::lock_guard lock(mutex_);
      readings_.push_back(reading);
      changed_.notify_all();
    };
  }
  std::vector<PeerClock> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [&] { return readings_.size() >= count; });
    return readings_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PeerClock> readings_;
};

TEST(RankAddress, IsRankHostAndPort) {
  const RankAddress name = parse_rank("3@node0:29555");
  EXPECT_EQ(name.rank, 3U);
  EXPECT_EQ(name.host, "node0");
  EXPECT_EQ(name.port, "29555");
  EXPECT_EQ(parse_rank("0@[::1]:80").host, "::1");
  for (const char* wrong : {"", "1", "node0:29555", "1@node0", "x@node0:1", "1@:1", "1@node0:x",
                            "1@node0:70000", "-1@node0:1", "1@node0:"}) {
    SCOPED_TRACE(wrong);
    try {
      parse_rank(wrong);
      FAIL() << "was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("1@node0:29555"));
    }
  }
}

TEST(ShortestExchange, HasTheSmallestError) {
  const std::array<ClockExchange, 3> exchanges{
      {{.sent_ns = 100, .peer_ns = 1000, .received_ns = 200},
       {.sent_ns = 300, .peer_ns = 1190, .received_ns = 340},
       {.sent_ns = 400, .peer_ns = 1300, .received_ns = 470}}};
  const PeerClock best = shortest(exchanges);
  EXPECT_EQ(best.at_ns, 320U);
  EXPECT_EQ(best.peer_ns, 1190U);
  EXPECT_EQ(best.round_trip_ns, 40U);
}

TEST(RankClock, ReadsAtTheStartPeriodicallyAndAtTheEnd) {
  const RankClock zero({.address = parse_rank("0@127.0.0.1:0"), .clock = other_clock});
  ASSERT_THAT(zero.notes(), IsEmpty());
  Readings readings;
  RankClock one({.address = {1, "127.0.0.1", std::to_string(zero.port())},
                 .report = readings.report(),
                 .period = 5ms});
  const std::size_t before = readings.wait_for(3).size();
  ASSERT_GE(before, 3U);
  one.finish();
  const auto all = readings.wait_for(before + 1);
  ASSERT_GE(all.size(), before + 1);
  EXPECT_THAT(one.notes(), IsEmpty());
  for (const PeerClock& reading : all) {
    // The other clock is exactly ahead_ns ahead: the error is at most half of the round trip.
    const auto wrong = static_cast<std::int64_t>(reading.peer_ns - reading.at_ns - ahead_ns);
    EXPECT_LE(std::abs(wrong), static_cast<std::int64_t>(reading.round_trip_ns / 2 + 1));
  }
}

TEST(RankClock, ReportsASilentRankZeroAndStillFindsItLater) {
  // A port that was free a moment ago.
  std::string port;
  {
    const ClockServer server("127.0.0.1", "0", now_ns);
    port = std::to_string(server.port());
  }
  Readings readings;
  RankClock one({.address = {1, "127.0.0.1", port}, .report = readings.report(), .period = 20ms});
  for (int i = 0; i < 1000 && one.notes().empty(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_THAT(one.notes(), ElementsAre(HasSubstr("is rank 0 running with --profile-rank 0@127")));
  const RankClock zero({.address = {0, "127.0.0.1", port}, .clock = other_clock});
  ASSERT_THAT(zero.notes(), IsEmpty());
  EXPECT_FALSE(readings.wait_for(1).empty());
  EXPECT_THAT(one.notes(), IsEmpty());
}

TEST(RankClock, EndsSoonWithoutAnAnswer) {
  std::string why;
  // Listens, and never answers.
  const Descriptor silent = listen_tcp("127.0.0.1", "0", &why);
  ASSERT_TRUE(silent) << why;
  const auto began = std::chrono::steady_clock::now();
  {
    RankClock one({.address = {1, "127.0.0.1", std::to_string(port_of(silent))},
                   .report = [](const PeerClock&) { FAIL() << "there was no answer"; }});
    one.finish();
    EXPECT_THAT(one.notes(), ElementsAre(HasSubstr("does not send its clock")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);  // half a second, on a busy machine
}

TEST(RankClock, ReadsAtTheEndWhenTheEndInterruptedTheFirstReading) {
  std::promise<void> asked, answer;
  std::once_flag first_question, first_release;
  const RankClock zero({.address = parse_rank("0@127.0.0.1:0"), .clock = [&] {
                          std::call_once(first_question, [&] {
                            asked.set_value();
                            answer.get_future().wait();
                          });
                          return other_clock();
                        }});
  std::atomic<bool> ends{false};
  Readings readings;
  RankClock one({.address = {1, "127.0.0.1", std::to_string(zero.port())},
                 .report = readings.report(),
                 .at_end = 20s,
                 .clock = [&] {  // called again only after the request was given up
                   if (ends) std::call_once(first_release, [&] { answer.set_value(); });
                   return now_ns();
                 }});
  asked.get_future().wait();
  ends = true;
  one.finish();
  EXPECT_EQ(readings.wait_for(1).size(), 1U);
  EXPECT_THAT(one.notes(), IsEmpty());
}

TEST(RankClock, TwoRanksZeroAtOneAddress) {
  const RankClock first({.address = parse_rank("0@127.0.0.1:0")});
  const RankClock second({.address = {0, "127.0.0.1", std::to_string(first.port())}});
  EXPECT_THAT(second.notes(), ElementsAre(HasSubstr("cannot listen at 127.0.0.1")));
  const RankClock nowhere({.address = parse_rank("0@no-such-host.invalid:0")});
  EXPECT_THAT(nowhere.notes(), ElementsAre(HasSubstr("no-such-host.invalid")));
}

TEST(ClockServer, DisconnectsClientsThatSendSomethingElse) {
  const ClockServer server("127.0.0.1", "0", [] { return std::uint64_t{42}; });
  ASSERT_EQ(server.why(), "");
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const auto ask = [&](std::string_view line) {
    std::string why;
    const Descriptor socket =
        connect_tcp("127.0.0.1", std::to_string(server.port()), deadline, -1, &why);
    EXPECT_TRUE(socket) << why;
    EXPECT_TRUE(send_line(socket, line, deadline));
    return receive_line(socket, clock_line_bytes, deadline);
  };
  EXPECT_EQ(ask("clock"), "42");
  EXPECT_EQ(ask("GET / HTTP/1.1"), std::nullopt);
  EXPECT_EQ(ask(std::string(5000, 'x')), std::nullopt);
  EXPECT_EQ(ask("clock"), "42") << "it still answers the others";
}

class Asker {
 public:
  explicit Asker(const ClockServer& server)
      : port_(std::to_string(server.port())), socket_(connect()) {}

  std::optional<std::string> ask() const {
    EXPECT_TRUE(send_line(socket_, clock_request, deadline()));
    return receive_line(socket_, clock_line_bytes, deadline());
  }
  // The server closed it.
  bool was_dropped() const {
    std::array<char, 1> byte{};
    return wait_for(socket_, POLLIN, deadline(), -1) &&
           ::recv(socket_.number(), byte.data(), byte.size(), 0) == 0;
  }

 private:
  static Deadline deadline() { return std::chrono::steady_clock::now() + 20s; }
  Descriptor connect() const {
    std::string why;
    Descriptor socket = connect_tcp("127.0.0.1", port_, deadline(), -1, &why);
    EXPECT_TRUE(socket) << why;
    return socket;
  }
  std::string port_;
  Descriptor socket_;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

std::uint64_t answer_42() {
  return 42;
}

TEST(ClockServer, SilentConnectionsKeepNoRankOutAndUseFewDescriptors) {
  const ClockServer server("127.0.0.1", "0", answer_42, {.connections = 8, .idle = 1h});
  ASSERT_EQ(server.why(), "");
  const auto before = open_descriptors();
  std::vector<Asker> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(server);
  EXPECT_EQ(Asker(server).ask(), "42");
  // The 200 are this test's ends; both listings include one descriptor of their own.
  EXPECT_LE(open_descriptors(), before + 200 + 8);
}

TEST(ClockServer, DropsIdleClients) {
  const ClockServer server("127.0.0.1", "0", answer_42, {.idle = 20ms});
  ASSERT_EQ(server.why(), "");
  EXPECT_TRUE(Asker(server).was_dropped());
  EXPECT_EQ(Asker(server).ask(), "42");
}

TEST(ClockServer, UsesAtMostAnEighthOfTheDescriptors) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{std::min<rlim_t>(limit.rlim_cur, 80), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const ClockServer server("127.0.0.1", "0", answer_42, {.idle = 1h});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(server.why(), "");
  const auto before = open_descriptors();
  std::vector<Asker> silent;
  for (int i = 0; i < 40; ++i) silent.emplace_back(server);
  EXPECT_EQ(Asker(server).ask(), "42");
  EXPECT_LE(open_descriptors(), before + 40 + 10);
}

TEST(ClockServer, PausesWithoutAFreeDescriptorAndContinuesAfterwards) {
  const ClockServer server("127.0.0.1", "0", answer_42);
  ASSERT_EQ(server.why(), "");
  const auto used_ns = [] {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  };
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The client has its descriptor; the server finds none for its end.
  std::string why;
  const Descriptor listener = listen_tcp("127.0.0.1", "0", &why);
  const rlimit none{static_cast<rlim_t>(listener.number()) + 2, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Asker asker(server);
  const auto before = used_ns();
  std::this_thread::sleep_for(300ms);
  const auto used = used_ns() - before;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_LT(used, 150ms) << "it span";
  EXPECT_EQ(asker.ask(), "42");
}

}  // namespace
}  // namespace warpstep::profiler
