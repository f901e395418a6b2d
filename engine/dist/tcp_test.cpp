#include "engine/dist/tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/free_port.h"

namespace warpstep {
namespace {

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

TEST(Tcp, NamesRanksThatDoNotConnect) {
  const auto errors =
      as_tcp_ranks(4, 2, std::chrono::milliseconds(300), [](Communicator&) { FAIL(); });
  EXPECT_THAT(errors[0], HasSubstr("ranks 2, 3 of 4 did not connect in time"));
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

class TcpEnvironment : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "WARPSTEP_PORT"})
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
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_PORT", "29400");
  const auto options = tcp_options_of_environment();
  ASSERT_TRUE(options);
  EXPECT_EQ(options->host, "node0");
  EXPECT_EQ(options->port, 29401);  // torchrun listens on MASTER_PORT
  EXPECT_EQ(options->world.rank, 3);
  EXPECT_EQ(options->world.local_size, 2);
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
}

}  // namespace
}  // namespace warpstep
