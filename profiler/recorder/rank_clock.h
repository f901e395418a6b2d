// Comparing the clocks of a job's processes: each rank reads rank 0's clock over TCP from time to
// time, so that their sessions can be aligned afterwards. Nothing waits for this: no step for an
// answer, no rank for another.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/clock.h"
#include "profiler/recorder/trigger.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// ---- TCP sockets that never block.

// For the first of the host's addresses that works; empty if none does, and `why` is the reason.
Descriptor connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                       int stop, std::string* why);
Descriptor listen_tcp(const std::string& host, const std::string& port, std::string* why);
Descriptor accept_tcp(const Descriptor& listener);

std::uint16_t port_of(const Descriptor& socket);  // the local port

// ---- Rank 0's side.

inline constexpr std::string_view clock_request = "clock";
inline constexpr std::size_t clock_line_bytes = 32;  // at most, of request and answer

// Resources for clients. A rank sends its requests one after the other and disconnects.
struct ClientLimits {
  std::size_t connections = 64;  // and at most an eighth of the process's descriptors
  std::chrono::milliseconds idle{2000};
};

// Answers a line "clock" with a line of this process's clock in ns. There is no authentication, so
// clients get few descriptors, and only while they send requests.
class ClockServer {
 public:
  ClockServer(const std::string& host, const std::string& port,
              std::function<std::uint64_t()> clock, const ClientLimits& limits = {});
  ~ClockServer();
  ClockServer(const ClockServer&) = delete;
  ClockServer& operator=(const ClockServer&) = delete;

  const std::string& why() const { return why_; }  // empty: it answers
  std::uint16_t port() const { return port_; }

 private:
  struct Client {
    Descriptor socket;
    Deadline until;    // of the next request; then it is disconnected
    std::string line;  // the part of a request received so far
  };
  void run();
  void drop_idle();
  bool accept();
  bool answer(Client& client) const;

  std::function<std::uint64_t()> clock_;
  ClientLimits limits_;
  std::vector<Client> clients_;
  std::string why_;
  Descriptor listener_;
  Descriptor stop_;  // readable at the end
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// ---- Every rank's side.

// The rank of this process, and the address of rank 0.
struct RankAddress {
  std::uint32_t rank = 0;
  std::string host;
  std::string port;
};
// "1@node0:29555", "0@[::]:29555". Throws UsageError that shows the format.
RankAddress parse_rank(const std::string& text);

// One request and its answer.
struct ClockExchange {
  std::uint64_t sent_ns = 0;      // this process's clock
  std::uint64_t peer_ns = 0;      // rank 0's clock, read between the two
  std::uint64_t received_ns = 0;  // this process's clock
};
// The exchange with the shortest round trip, which has the smallest error. Requires at least one
// exchange.
PeerClock shortest(std::span<const ClockExchange> exchanges);

struct RankClockOptions {
  RankAddress address;
  std::function<void(const PeerClock&)> report;   // receives each reading, in another thread
  std::chrono::milliseconds period{10'000};       // between readings
  std::chrono::milliseconds at_end{500};          // limit of the last reading
  std::function<std::uint64_t()> clock = now_ns;  // tests use another one
};

// Rank 0 answers anyone at its address: its clock is no secret. The other ranks read it at the
// start, once per period and at the end, each time with 32 exchanges; without an answer they try
// again every second.
class RankClock {
 public:
  explicit RankClock(RankClockOptions options);
  ~RankClock();
  RankClock(const RankClock&) = delete;
  RankClock& operator=(const RankClock&) = delete;

  // Reads a last time, for at most `at_end`, unless rank 0 never answered, and ends. Call it once;
  // the destructor only ends.
  void finish();
  // Why there are no readings: one sentence each; empty if all went well.
  std::vector<std::string> notes() const;
  std::uint16_t port() const;  // at which rank 0 answers; 0 for other ranks

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace warpstep::profiler
