#include "engine/dist/tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "tests/free_port.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TcpOptions options_of(int rank, int size, std::uint16_t port) {
  return {.world = {size, rank, size, rank},
          .host = "localhost",
          .port = port,
          .timeout = std::chrono::milliseconds(5000)};
}

// Runs `work` as each of the ranks [0, started) of `size`; returns their errors.
std::vector<std::string> as_tcp_ranks(int size, int started, std::chrono::milliseconds timeout,
                                      const std::function<void(Communicator&)>& work) {
  const std::uint16_t port = free_port();
  std::vector<std::string> errors(static_cast<std::size_t>(started));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < started; ++rank)
    threads.emplace_back([&, rank] {
      try {
        TcpOptions options = options_of(rank, size, port);
        options.timeout = timeout;
        Communicator communicator(open_tcp(options), {.timeout = timeout});
        work(communicator);
      } catch (const RankError& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

constexpr std::chrono::milliseconds enough{20'000};

TEST(Tcp, SumsOverThreeRanks) {
  const auto errors = as_tcp_ranks(3, 3, enough, [](Communicator& communicator) {
    // More than sockets buffer.
    std::vector<float> values(3'000'001, static_cast<float>(communicator.world().rank + 1));
    communicator.sum(std::span(values), 0.5F);
    EXPECT_EQ(std::ranges::count(values, 3.0F), 3'000'001);
    EXPECT_THAT(communicator.gather(std::to_string(communicator.world().rank)),
                ElementsAre("0", "1", "2"));
  });
  EXPECT_THAT(errors, ElementsAre("", "", ""));
}

// Of processes of other machines nothing else is known.
TEST(Tcp, NamesARankThatHasLeftToOneThatWaitsForItsDevice) {
  const auto errors = as_tcp_ranks(3, 3, enough, [](Communicator& communicator) {
    if (communicator.world().rank == 0) communicator.wait_until([] { return false; });
    if (communicator.world().rank == 1) communicator.gather("");
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr(" for an exchange between the GPUs of all ranks: rank 0 "),
                               HasSubstr("; rank 2 has left the job")));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 left the job"));
}

// A library may report the end of a rank before its connections close.
TEST(Tcp, WaitsForTheEndThatExplainsAnError) {
  std::string said;
  const auto errors = as_tcp_ranks(2, 2, enough, [&](Communicator& communicator) {
    if (communicator.world().rank == 0)
      said = communicator.activities_at_an_end();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  EXPECT_THAT(said, HasSubstr("; rank 1 has left the job"));
  EXPECT_THAT(errors, ElementsAre("", ""));
}

// As of srun, which sets no LOCAL_WORLD_SIZE.
TEST(Tcp, FindsTheRanksOfAMachineThatNoLauncherCounted) {
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      TcpOptions options = options_of(rank, 3, port);
      options.world.local_size = 0;
      options.world.local_rank = -1;
      Communicator communicator(open_tcp(options));
      communicator.share_memory();
      EXPECT_EQ(communicator.world().local_size, 3);
      EXPECT_EQ(communicator.world().local_rank, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Tcp, NamesRanksThatDoNotConnect) {
  const auto errors =
      as_tcp_ranks(4, 2, std::chrono::milliseconds(300), [](Communicator&) { FAIL(); });
  EXPECT_THAT(errors[0], HasSubstr("ranks 2, 3 of 4 did not connect in time"));
  const auto of_many =
      as_tcp_ranks(12, 2, std::chrono::milliseconds(300), [](Communicator&) { FAIL(); });
  EXPECT_THAT(of_many[0], HasSubstr("ranks 2, 3, 4, 5, 6, 7, 8, 9 and 2 more of 12 did not"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 did not start the job"));
}

TEST(Tcp, SaysThatARankLeft) {
  const auto errors = as_tcp_ranks(2, 2, enough, [](Communicator& communicator) {
    if (communicator.world().rank == 1) return;
    std::vector<double> values(2);
    communicator.sum(std::span(values));
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 left the job"));
}

TEST(Tcp, ClosesConnectionsOfOthers) {
  const std::uint16_t port = free_port();
  std::thread first([&] {
    Communicator communicator(open_tcp(options_of(0, 2, port)));
    EXPECT_EQ(communicator.gather("a").size(), 2U);
  });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int stranger = -1;
  for (int tries = 0; tries < 200; ++tries) {
    stranger = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
    ::close(stranger);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(stranger, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  Communicator second(open_tcp(options_of(1, 2, port)));
  EXPECT_THAT(second.gather("b"), ElementsAre("a", "b"));
  first.join();
  ::close(stranger);
}

TEST(Tcp, LetsARankStartAgainWhileOthersAreMissing) {
  const std::uint16_t port = free_port();
  std::thread first([&] {
    Communicator communicator(open_tcp(options_of(0, 3, port)));
    EXPECT_EQ(communicator.gather("a").size(), 3U);
  });
  TcpOptions brief = options_of(1, 3, port);
  brief.timeout = std::chrono::milliseconds(700);
  EXPECT_THROW(open_tcp(brief), RankError);  // and its connection is closed
  std::thread second([&] {
    Communicator communicator(open_tcp(options_of(1, 3, port)));
    communicator.gather("b");
  });
  Communicator third(open_tcp(options_of(2, 3, port)));
  EXPECT_THAT(third.gather("c"), ElementsAre("a", "b", "c"));
  first.join();
  second.join();
}

// The second job's rank 1 comes to the first job's rank 0, and waits for its own.
TEST(Tcp, JobsWithOnePortDoNotMix) {
  const std::uint16_t port = free_port();
  const auto start = [port](int rank, const char* job) {
    return std::thread([=] {
      TcpOptions options = options_of(rank, 2, port);
      options.job = job;
      Communicator communicator(open_tcp(options));
      EXPECT_THAT(communicator.gather(job), ElementsAre(job, job));
    });
  };
  std::thread first = start(0, "a"), other = start(1, "b");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::thread second = start(1, "a");
  first.join();
  second.join();
  start(0, "b").join();
  other.join();
}

TEST(Tcp, SaysThatAnotherJobListens) {
  const std::uint16_t port = free_port();
  std::thread first([&] {
    TcpOptions options = options_of(0, 2, port);
    options.timeout = std::chrono::milliseconds(1000);
    options.job = "a";
    EXPECT_THROW(open_tcp(options), RankError);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::string why;
  try {
    TcpOptions options = options_of(1, 2, port);
    options.timeout = std::chrono::milliseconds(500);
    options.job = "b";
    open_tcp(options);
  } catch (const RankError& error) {
    why = error.what();
  }
  first.join();
  EXPECT_THAT(why, HasSubstr("another job listens at localhost port"));
}

TEST(Tcp, SaysThatNoDescriptorsAreLeft) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(free_port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int second = ::socket(AF_INET, SOCK_STREAM, 0);
  const int next = ::dup(second);
  ::close(next);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  std::string why;
  std::thread first([&] {  // which has a descriptor to listen
    try {
      open_tcp(options_of(0, 2, ntohs(address.sin_port)));
    } catch (const RankError& error) {
      why = error.what();
    }
  });
  for (int tries = 0; tries < 200; ++tries) {
    if (::connect(second, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  first.join();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ::close(second);
  EXPECT_THAT(why, HasSubstr("cannot accept the connections of ranks: Too many open files; raise "
                             "`ulimit -n` above 66"));
}

// An address of this machine by which other machines may reach it, where packets leave it; 0 if it
// has none.
in_addr_t outer_address() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(0xC6336401);  // 198.51.100.1, of no machine; nothing is sent
  socklen_t bytes = sizeof address;
  const bool found = ::connect(socket, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  ::close(socket);
  return found ? address.sin_addr.s_addr : 0;
}

// What is sent to connect, as in tcp.cpp.
struct Greeting {
  char magic[8] = {'w', 'a', 'r', 'p', 's', 't', 'e', '2'};
  std::int32_t rank = 0, size = 0;
  std::uint32_t job = 0;
  std::uint16_t port = 0;
  char unused[2] = {};
};
struct Place {
  sockaddr_storage address{};
  socklen_t length = 0;
};

// Says to rank 0 of 3, at an address of its machine, that it is `rank`; returns the connection.
int greet(in_addr_t at, std::uint16_t port, int rank) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = at;
  for (int tries = 0; tries < 200; ++tries) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const Greeting greeting{
          .rank = rank, .size = 3, .port = static_cast<std::uint16_t>(9000 + rank)};
      EXPECT_EQ(::send(socket, &greeting, sizeof greeting, MSG_NOSIGNAL),
                static_cast<ssize_t>(sizeof greeting));
      return socket;
    }
    ::close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

// Where rank 1 is for the rank that has this connection: "10.0.0.7 9001". Not in an address of
// IPv6, to which a machine without that cannot connect.
std::string place_of_rank_1(int socket) {
  std::array<Place, 2> places;
  EXPECT_EQ(::recv(socket, &places, sizeof places, MSG_WAITALL),
            static_cast<ssize_t>(sizeof places));
  EXPECT_EQ(places[1].address.ss_family, AF_INET);
  std::array<char, 64> host{}, port{};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&places[1].address), places[1].length, host.data(),
                host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return std::string(host.data()) + " " + port.data();
}

// A rank on rank 0's machine connects by 127.0.0.1 where the machine's name stands for that.
TEST(Tcp, SendsOtherMachinesNoLoopbackAddress) {
  const in_addr_t outer = outer_address();
  if (outer == 0) GTEST_SKIP() << "this machine has no address but loopback";
  const std::uint16_t port = free_port();
  std::thread zero([&] { open_tcp(options_of(0, 3, port)); });
  const int one = greet(htonl(INADDR_LOOPBACK), port, 1), two = greet(outer, port, 2);
  EXPECT_EQ(place_of_rank_1(one), "127.0.0.1 9001");
  std::array<char, 64> host{};
  ::inet_ntop(AF_INET, &outer, host.data(), host.size());
  EXPECT_EQ(place_of_rank_1(two), std::string(host.data()) + " 9001");
  zero.join();
  ::close(one);
  ::close(two);
}

// In place of rank 0 of 3, for one of the other ranks.
class FirstRank {
 public:
  FirstRank() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = at(0);
    socklen_t bytes = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, any, bytes), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, any, &bytes), 0);
    port_ = ntohs(address.sin_port);
    for (Place& place : places_) {
      address = at(free_port());
      std::memcpy(&place.address, &address, sizeof address);
      place.length = sizeof address;
    }
  }
  FirstRank(const FirstRank&) = delete;
  FirstRank& operator=(const FirstRank&) = delete;
  ~FirstRank() {
    leave();
    ::close(listener_);
  }
  // Runs `rank` in a thread; returns its error.
  std::future<std::string> start(int rank) {
    TcpOptions options = options_of(rank, 3, port_);
    options.timeout = std::chrono::milliseconds(1500);
    options.host = "127.0.0.1";
    auto error = std::async(std::launch::async, [options] {
      try {
        open_tcp(options);
      } catch (const PeerError& left) {
        return std::string("peer: ") + left.what();
      } catch (const RankError& other) {
        return std::string(other.what());
      }
      return std::string();
    });
    connection_ = ::accept(listener_, nullptr, nullptr);
    Greeting greeting;
    EXPECT_EQ(::recv(connection_, &greeting, sizeof greeting, MSG_WAITALL),
              static_cast<ssize_t>(sizeof greeting));
    return error;
  }
  // Tells it that the others are where nobody listens, and the first of what all exchange then.
  void send_places() const {
    EXPECT_EQ(::send(connection_, &places_, sizeof places_, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof places_));
    EXPECT_EQ(::send(connection_, "12345678", 8, MSG_NOSIGNAL), 8);
  }
  void leave() { ::close(std::exchange(connection_, -1)); }

 private:
  static sockaddr_in at(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int listener_, connection_ = -1;
  std::uint16_t port_ = 0;
  std::array<Place, 3> places_;
};

// Rank 0 leaves because another has. Rank 1 waits for rank 2 to connect, rank 2 connects to rank 1.
TEST(Tcp, WaitsForNoOtherRankWhereRank0HasLeft) {
  for (const int rank : {1, 2}) {
    FirstRank zero;
    std::future<std::string> error = zero.start(rank);
    zero.send_places();
    zero.leave();
    EXPECT_EQ(error.get(), "peer: rank 0 left the job");
  }
}

TEST(Tcp, SaysWhyItHasNoSocketForAnotherRank) {
  FirstRank zero;
  std::future<std::string> error = zero.start(2);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit full{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
  zero.send_places();
  const std::string said = error.get();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(said, HasSubstr("rank 1 cannot be reached: Too many open files; ranks use any"));
}

class TcpEnvironment : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "WARPSTEP_PORT", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"})
      ::unsetenv(name);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(TcpEnvironment, IsThatOfTorchrun) {
  EXPECT_FALSE(tcp_options_of_environment());
  set("RANK", "3");
  set("WORLD_SIZE", "4");
  EXPECT_FALSE(tcp_options_of_environment());
  set("MASTER_ADDR", "node0");
  ASSERT_TRUE(tcp_options_of_environment());
  EXPECT_EQ(tcp_options_of_environment()->world.local_size, 0);  // not known
  EXPECT_EQ(tcp_options_of_environment()->world.local_rank, -1);
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_PORT", "29400");
  const auto options = tcp_options_of_environment();
  ASSERT_TRUE(options);
  EXPECT_EQ(options->host, "node0");
  EXPECT_EQ(options->port, 29401);  // torchrun listens on MASTER_PORT
  EXPECT_EQ(options->world.rank, 3);
  EXPECT_EQ(options->world.local_size, 2);
  EXPECT_EQ(options->job, "");
  set("SLURM_JOB_ID", "17");
  EXPECT_THAT(tcp_options_of_environment()->job, HasSubstr("17"));
  set("WARPSTEP_PORT", "30000");
  EXPECT_EQ(tcp_options_of_environment()->port, 30000);
}

TEST_F(TcpEnvironment, RefusesWhatIsNoRank) {
  set("MASTER_ADDR", "node0");
  set("WORLD_SIZE", "2");
  set("RANK", "2");
  EXPECT_THROW(tcp_options_of_environment(), UsageError);
  set("RANK", "one");
  EXPECT_THROW(tcp_options_of_environment(), UsageError);
  set("RANK", "0");
  set("WORLD_SIZE", "65536");
  EXPECT_TRUE(tcp_options_of_environment());
  set("WORLD_SIZE", "2147483647");
  EXPECT_THAT(
      [] { tcp_options_of_environment(); },
      ThrowsMessage<UsageError>(HasSubstr("WORLD_SIZE=2147483647: a job has at most 65536 ranks")));
}

}  // namespace
}  // namespace warpstep
